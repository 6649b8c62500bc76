#include "millrace/report/detail/assets.h"

namespace millrace::report::detail {

// Shows the values under the pointer and zooms into a range of steps: drag to choose it, double-click for all of it. Without the
// script the curves stay static.
constinit const std::string_view kScript = R"(
(()=>{'use strict';
const W=400,H=190,L=58,R=20,T=8,B=26,tip=document.getElementById('tip'),NS='http://www.w3.org/2000/svg';
const num=v=>v===0?'0':Math.abs(v)>=1e5||Math.abs(v)<1e-3?v.toExponential(2):String(+v.toPrecision(5));
const marks=(a,b,n)=>{const r=(b-a)/n,p=10**Math.floor(Math.log10(r)),s=[1,2,5,10].map(d=>d*p).find(d=>d>=r),o=[];
 for(let i=Math.ceil(a/s-1e-9);i*s<=b+1e-9*s&&o.length<30;i++)o.push(i*s);return o};
const mean=q=>{const n=q.length,s=Math.max(1,Math.floor(n/100)),w=Math.max(1,Math.floor(n/50)),o=[];
 for(let i=0;i<n;i+=s){const t=q.slice(Math.max(0,i-w),i+w+1);o.push([q[i][0],t.reduce((u,v)=>u+v[1],0)/t.length])}return o};
document.querySelectorAll('figure.curve').forEach(fig=>{
 const data=JSON.parse(fig.dataset.curve),svg=fig.querySelector('svg.plot'),log=data.log,f=v=>log?Math.log10(v):v;
 const all=data.series.flatMap(s=>s.points);if(!all.length)return;
 let x0=Math.min(...all.map(p=>p[0])),x1=Math.max(...all.map(p=>p[0]));if(x0===x1){x0-=1;x1+=1}
 const full=[x0,x1];let a=x0,b=x1,down=null;
 const px=x=>L+(x-a)/(b-a)*(W-L-R),at=e=>{const r=svg.getBoundingClientRect();return a+((e.clientX-r.left)/r.width*W-L)/(W-L-R)*(b-a)};
 const make=(n,c,o)=>{const e=document.createElementNS(NS,n);e.setAttribute('class',c);for(const k in o)e.setAttribute(k,o[k]);svg.append(e);return e};
 const line=make('line','at',{y1:T,y2:H-B,visibility:'hidden'}),pick=make('rect','pick',{y:T,height:H-T-B,width:0,visibility:'hidden'});
 const draw=()=>{
  const seen=data.series.map(s=>s.points.filter(p=>p[0]>=a&&p[0]<=b)),ys=seen.flat().map(p=>f(p[1])).filter(isFinite);if(!ys.length)return;
  let lo=Math.min(...ys),hi=Math.max(...ys);if(lo===hi){const d=lo?Math.abs(lo)*.05:1;lo-=d;hi+=d}
  const air=.04*(hi-lo);lo-=air;hi+=air;const py=v=>H-B-(f(v)-lo)/(hi-lo)*(H-T-B),g=svg.querySelector('.axes');g.replaceChildren();
  const add=(n,o,t)=>{const e=document.createElementNS(NS,n);for(const k in o)e.setAttribute(k,o[k]);if(t!==undefined)e.textContent=t;g.append(e)};
  const ym=log?(()=>{const s=Math.max(1,Math.ceil((hi-lo)/5)),o=[];for(let p=Math.ceil(lo);p<=hi;p+=s)o.push(10**p);
   return o.length>1?o:marks(10**lo,10**hi,4)})():marks(lo,hi,5);
  ym.forEach(m=>{const y=py(m);add('line',{class:'grid',x1:L,x2:W-R,y1:y,y2:y});add('text',{class:'mark',x:L-6,y:y+3.5,'text-anchor':'end'},num(m))});
  marks(a,b,5).forEach(m=>add('text',{class:'mark',x:px(m),y:H-8,'text-anchor':'middle'},num(m)));
  svg.querySelectorAll('path').forEach(p=>{let s=seen[+p.dataset.i];if(p.classList.contains('mean'))s=mean(s);
   p.setAttribute('d',s.map((q,k)=>(k?'L':'M')+px(q[0]).toFixed(1)+' '+py(q[1]).toFixed(1)).join(''))});
  svg.querySelectorAll('circle').forEach(c=>c.remove())};
 svg.addEventListener('pointermove',e=>{
  const x=at(e);if(down!==null){const u=px(Math.max(a,Math.min(down,x))),v=px(Math.min(b,Math.max(down,x)));
   pick.setAttribute('x',u);pick.setAttribute('width',Math.max(0,v-u));pick.setAttribute('visibility','visible')}
  let text='',near=null;
  data.series.forEach(s=>{let best=null;s.points.forEach(p=>{if(p[0]>=a&&p[0]<=b&&(!best||Math.abs(p[0]-x)<Math.abs(best[0]-x)))best=p});
   if(best){near=near===null||Math.abs(best[0]-x)<Math.abs(near-x)?best[0]:near;text+='\n'+s.name+'  '+num(best[1])}});
  if(near===null)return;line.setAttribute('x1',px(near));line.setAttribute('x2',px(near));line.setAttribute('visibility','visible');
  tip.hidden=false;tip.textContent='step '+num(near)+text;
  tip.style.left=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8)+'px';tip.style.top=(e.clientY+14)+'px'});
 svg.addEventListener('pointerdown',e=>{if(e.pointerType==='mouse'){down=at(e);e.preventDefault()}});
 const leave=()=>{tip.hidden=true;line.setAttribute('visibility','hidden')};
 svg.addEventListener('pointerleave',leave);
 addEventListener('pointerup',e=>{if(down===null)return;const x=at(e),u=Math.max(a,Math.min(down,x)),v=Math.min(b,Math.max(down,x));
  down=null;pick.setAttribute('visibility','hidden');if(v-u>.02*(b-a)){a=u;b=v;draw()}});
 svg.addEventListener('dblclick',()=>{[a,b]=full;draw()});
});})();
)";

}  // namespace millrace::report::detail
