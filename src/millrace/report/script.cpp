#include "millrace/report/detail/assets.h"

namespace millrace::report::detail {

// Draws the diagrams again from their data, but with another axis, range, smoothing or choice of runs, and shows the values
// under the pointer. Without the script the diagrams stay as curve.cpp drew them.
constinit const std::string_view kScript = R"(
'use strict';
const W=400,H=190,L=58,R=20,T=8,B=26,NS='http://www.w3.org/2000/svg',tip=document.getElementById('tip');
const storeKey='millrace '+location.pathname;
const state={smooth:null,hidden:[],axis:{},range:null,step:null,open:{},scroll:null};
try{Object.assign(state,JSON.parse(sessionStorage.getItem(storeKey)||'{}'))}catch{}
const keep=()=>{try{sessionStorage.setItem(storeKey,JSON.stringify(state))}catch{}};
const runs=[...document.querySelectorAll('#controls button.run')].map(b=>b.textContent);

// A value that is not finite is null in the data and NaN here.
const drawn=p=>isFinite(p[1]);
const num=v=>isNaN(v)?'not finite':v===0?'0':Math.abs(v)>=1e6||Math.abs(v)<1e-3?v.toExponential(2):String(+v.toPrecision(5));
const mark=v=>Math.abs(v)>=1e4&&Math.abs(v)<1e6?String(+(v/1e3).toPrecision(4))+'k':
 Math.abs(v)>=1e6&&Math.abs(v)<1e9?String(+(v/1e6).toPrecision(4))+'M':v===0?'0':
 Math.abs(v)<1e-3||Math.abs(v)>=1e9?(+v.toPrecision(3)).toExponential():String(+v.toPrecision(4));
const marks=(a,b,n)=>{const r=(b-a)/n,p=10**Math.floor(Math.log10(r)),s=[1,2,5,10].map(d=>d*p).find(d=>d>=r),o=[];
 for(let i=Math.ceil(a/s-1e-9);i*s<=b+1e-9*s&&o.length<30;i++)o.push(i*s);return o};
const logMarks=(a,b)=>{const s=Math.max(1,Math.ceil((b-a)/5)),o=[];
 for(let p=Math.floor(a);p<=b;p+=s)for(const d of b-a<1.7?[1,2,5]:[1]){const m=d*10**p,l=Math.log10(m);if(l>=a&&l<=b)o.push(m)}
 return o};
const mean=q=>{const n=q.length,s=Math.max(1,Math.floor(n/100)),w=Math.max(1,Math.floor(n/50)),o=[];
 for(let i=0;i<n;i+=s){const t=q.slice(Math.max(0,i-w),i+w+1);o.push([q[i][0],t.reduce((u,v)=>u+v[1],0)/t.length])}return o};
const smoothed=(q,w)=>{let s=0,n=0;return q.map(p=>{s=w*s+(1-w)*p[1];n=w*n+1-w;return[p[0],s/n]})};
const node=(name,attributes,text)=>{const e=document.createElementNS(NS,name);
 for(const k in attributes){const v=attributes[k];e.setAttribute(k,typeof v==='number'?+v.toFixed(1):v)}if(text!==undefined)e.textContent=text;return e};
const button=(text,title,act)=>{const e=document.createElement('button');e.type='button';e.textContent=text;e.title=title;
 e.addEventListener('click',act);return e};
const figures=[];

class Figure{
 constructor(element){
  const data=JSON.parse(element.dataset.curve);
  Object.assign(this,{element,data,title:element.querySelector('figcaption b').textContent,svg:element.querySelector('svg.plot')});
  data.series.forEach(s=>s.points.forEach(p=>{p[1]??=NaN}));
  this.points=data.series.flatMap(s=>s.points.filter(drawn));
  if(!this.points.length)return;
  const x=this.points.map(p=>p[0]);
  this.full=data.x||[Math.min(...x),Math.max(...x)];
  if(this.full[0]===this.full[1])this.full=[this.full[0]-1,this.full[1]+1];
  const values=this.points.map(p=>p[1]);
  this.axes=[];
  if(data.metric&&values.every(v=>v>=0&&v<=1))this.axes.push('share');
  this.axes.push('linear');
  if(values.every(v=>v>0))this.axes.push('log');
  this.line=node('line',{class:'at',y1:T,y2:H-B,visibility:'hidden'});
  this.pick=node('rect',{class:'pick',y:T,height:H-T-B,width:0,visibility:'hidden'});
  this.svg.append(this.line,this.pick);
  this.now=document.createElement('div');this.now.className='now';this.now.hidden=true;element.append(this.now);
  this.addTools();this.listen();figures.push(this);
 }
 addTools(){
  const tools=document.createElement('span');tools.className='tools';
  const words={share:['0–1','from 0 to 1'],linear:['lin','linear axis'],log:['log','logarithmic axis']};
  this.buttons=this.axes.length<2?[]:this.axes.map(axis=>{
   const b=button(words[axis][0],words[axis][1],()=>{state.axis[this.title]=axis;keep();this.draw()});b.dataset.axis=axis;return b});
  tools.append(...this.buttons,button('SVG','this diagram as a file',()=>saveSvg(this)),
   button('CSV','the points drawn here as a file; log.jsonl has all',()=>saveCsv(this)));
  this.element.querySelector('figcaption b').after(tools);
 }
 get range(){return state.range||this.full}
 get axis(){const chosen=state.axis[this.title];return this.axes.includes(chosen)?chosen:this.data.axis}
 get shown(){return this.data.series.filter(s=>!state.hidden.includes(runs[s.run]))}
 within(points){const [a,b]=this.range;return points.filter(p=>p[0]>=a&&p[0]<=b)}
 px(x){const [a,b]=this.range;return L+(x-a)/(b-a)*(W-L-R)}
 step(event){const r=this.svg.getBoundingClientRect(),[a,b]=this.range;
  return a+((event.clientX-r.left)/r.width*W-L)/(W-L-R)*(b-a)}
 draw(){
  const axes=this.svg.querySelector('.axes'),lines=this.svg.querySelector('.lines'),axis=this.axis,log=axis==='log';
  this.buttons.forEach(b=>b.setAttribute('aria-pressed',b.dataset.axis===axis));
  this.seen=this.shown.map(s=>({series:s,points:this.within(s.points)})).filter(s=>s.points.some(drawn));
  const f=v=>log?Math.log10(v):v,values=this.seen.flatMap(s=>s.points.map(p=>f(p[1]))).filter(isFinite);
  axes.replaceChildren();lines.replaceChildren();
  let lo=axis==='share'?0:Math.min(...values),hi=axis==='share'?1:Math.max(...values);
  if(!values.length)[lo,hi]=[0,1];
  if(lo===hi){const d=lo?Math.abs(lo)*.05:1;lo-=d;hi+=d}
  const air=.04*(hi-lo);lo-=air;hi+=air;
  const py=v=>H-B-(f(v)-lo)/(hi-lo)*(H-T-B),place=p=>this.px(p[0]).toFixed(1)+' '+py(p[1]).toFixed(1);
  for(const m of log?logMarks(lo,hi):marks(lo,hi,5)){const y=py(m);
   axes.append(node('line',{class:'grid',x1:L,x2:W-R,y1:y,y2:y}),
    node('text',{class:'mark',x:L-6,y:y+3.5,'text-anchor':'end'},mark(m)))}
  for(const m of marks(...this.range,5))
   axes.append(node('text',{class:'mark',x:this.px(m),y:H-8,'text-anchor':'middle'},mark(m)));
  const best=this.data.best;
  if(best!==undefined&&this.within([[best]]).length)
   axes.append(node('line',{class:'best',x1:this.px(best),x2:this.px(best),y1:T,y2:H-B}));
  const circle=(p,look,r)=>isFinite(f(p[1]))&&lines.append(node('circle',{class:look,r,cx:this.px(p[0]).toFixed(1),cy:py(p[1]).toFixed(1)}));
  for(const {series,points} of this.seen){
   const path=(q,look)=>{let down=false;
    lines.append(node('path',{class:series.look+look,d:q.map(p=>{const pen=down?'L':'M';down=isFinite(f(p[1]));return down?pen+place(p):''}).join('')}))};
   const average=(series.average?this.within(series.average):points).filter(drawn),only=points.filter(drawn).length===1;
   if(only)points.forEach(p=>circle(p,series.look,3));
   else if(state.smooth===null&&series.noisy){path(points,' raw');path(mean(average),' mean')}
   else if(state.smooth){path(points,' raw');path(smoothed(average,state.smooth),' mean')}
   else path(points,'');
   const alone=(p,k)=>!only&&![points[k-1],points[k+1]].some(q=>q&&isFinite(f(q[1])));
   points.forEach((p,k)=>{if(alone(p,k)||!only&&series.marks)circle(p,series.look,1.8)});
   if(series.best&&this.within([series.best]).length)circle(series.best,series.look+' ring',4.5);
  }
 }
 // The values nearest to a step, or no values.
 hover(x){
  this.line.setAttribute('visibility','hidden');this.now.hidden=true;this.values=[];
  if(x===null||!this.seen)return;
  let near=null;
  for(const {series,points} of this.seen){
   const p=points.reduce((u,v)=>Math.abs(v[0]-x)<Math.abs(u[0]-x)?v:u);
   if(near===null||Math.abs(p[0]-x)<Math.abs(near-x))near=p[0];
   this.values.push({name:[runs[series.run],series.name].filter(Boolean).join(' ')||this.title,look:series.look,value:p[1]});
  }
  if(near===null)return;
  this.near=near;
  for(const k of ['x1','x2'])this.line.setAttribute(k,this.px(near));
  this.line.setAttribute('visibility','visible');
  this.now.replaceChildren(...this.values.slice(0,6).map(v=>{const e=document.createElement('span');
   e.className=v.look.split(' ')[0];e.textContent=num(+v.value.toPrecision(3));return e}));
  this.now.hidden=false;
 }
 listen(){
  this.down=null;
  this.svg.addEventListener('pointermove',e=>{
   const x=this.step(e);
   if(this.down!==null){const [u,v]=[this.down,x].sort((p,q)=>p-q).map(s=>this.px(Math.min(Math.max(s,this.range[0]),this.range[1])));
    this.pick.setAttribute('x',u);this.pick.setAttribute('width',v-u);this.pick.setAttribute('visibility','visible')}
   figures.forEach(f=>f.hover(x));this.now.hidden=true;
   if(!this.values.length){tip.hidden=true;return}
   tip.hidden=false;
   tip.textContent='step '+num(this.near)+this.values.slice(0,24).map(v=>'\n'+v.name+'  '+num(v.value)).join('')+
    (this.values.length>24?'\n'+(this.values.length-24)+' more':'');
   tip.style.left=Math.max(0,Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8))+'px';
   tip.style.top=Math.max(0,Math.min(e.clientY+14,innerHeight-tip.offsetHeight-8))+'px'});
  this.svg.addEventListener('pointerdown',e=>{if(e.pointerType==='mouse'&&e.button===0){this.down=this.step(e);e.preventDefault()}});
  this.svg.addEventListener('pointerleave',()=>{tip.hidden=true;figures.forEach(f=>f.hover(null))});
  addEventListener('pointerup',e=>{
   if(this.down===null)return;
   const [u,v]=[this.down,this.step(e)].sort((p,q)=>p-q).map(s=>Math.min(Math.max(s,this.range[0]),this.range[1]));
   this.down=null;this.pick.setAttribute('visibility','hidden');
   if(v-u>.02*(this.range[1]-this.range[0]))look([u,v])});
  this.svg.addEventListener('dblclick',()=>look(null));
 }
}
const drawAll=()=>figures.forEach(f=>f.draw());
const look=range=>{state.range=range;keep();drawAll()};
document.querySelectorAll('figure.curve').forEach(e=>new Figure(e));

const save=(name,type,text)=>{const a=document.createElement('a'),address=URL.createObjectURL(new Blob([text],{type}));
 a.setAttribute('href',address);a.download=name.replace(/[^\w.-]+/g,'_');a.click();setTimeout(()=>URL.revokeObjectURL(address),1e4)};
const saveCsv=figure=>{
 const quoted=s=>'"'+s.replaceAll('"','""')+'"',columns=figure.seen.map(s=>new Map(s.points.filter(drawn)));
 const names=figure.seen.map(s=>quoted([runs[s.series.run],s.series.name].filter(Boolean).join(' ')||figure.title));
 const steps=[...new Set(columns.flatMap(c=>[...c.keys()]))].sort((a,b)=>a-b);
 save(figure.title+'.csv','text/csv',['step,'+names.join(',')].concat(steps.map(x=>[x,...columns.map(c=>c.get(x)??'')].join(','))).join('\n')+'\n')};
// With the colours of the light page as attributes: programs that draw papers know no style sheets.
const saveSvg=figure=>{
 const colours=['#1f5fbf','#c2570c','#74003a','#6ba9bd','#402584','#8a5f7c','#a670f3','#d98b09','#b01003','#fc6183','#364d73','#3788bb'],
  dashes=['','6 3','2 2','8 2 2 2'];
 const paint=e=>{const c=e.classList,of=[...c].find(k=>/^c\d+$/.test(k)),colour=of?colours[of.slice(1)]:'#646b75';
  const put=o=>{for(const k in o)e.setAttribute(k,o[k])};
  if(e.tagName==='path'){const d=[...c].find(k=>/^d\d$/.test(k)),raw=c.contains('raw');
   put({fill:'none',stroke:colour,'stroke-width':raw?1:1.6,'stroke-linejoin':'round','stroke-opacity':raw?.28:1});
   if(!raw&&d&&dashes[d[1]])put({'stroke-dasharray':dashes[d[1]]})}
  if(e.tagName==='circle')put(c.contains('ring')?{fill:'none',stroke:colour,'stroke-width':1.6}:{fill:colour});
  if(e.tagName==='line')put(c.contains('best')?{stroke:'#646b75','stroke-dasharray':'4 3'}:{stroke:'#e4e6e9'});
  if(e.tagName==='text')put({'font-family':'sans-serif','font-size':e.getAttribute('font-size')||11,fill:'#1c1f23'})};
 const out=node('svg',{xmlns:NS});
 for(const g of figure.svg.querySelectorAll('.axes,.lines'))out.append(g.cloneNode(true));
 out.append(node('text',{x:L,y:-8,'font-size':13},figure.title));
 let x=L,y=H+10;
 for(const {series} of figure.seen.length>1?figure.seen:[]){
  const name=[runs[series.run],series.name].filter(Boolean).join(' '),width=30+6.2*name.length;
  if(x+width>W&&x>L){x=L;y+=16}
  out.append(node('path',{class:series.look,d:'M'+x+' '+(y-4)+'h16'}),node('text',{x:x+21,y},name));x+=width}
 out.setAttribute('viewBox',[0,-26,W,y+34].join(' '));out.setAttribute('width',2*W);out.setAttribute('height',2*(y+34));
 out.querySelectorAll('*').forEach(paint);
 save(figure.title+'.svg','image/svg+xml',new XMLSerializer().serializeToString(out))};
)";

}  // namespace millrace::report::detail
