#include "millrace/report/detail/assets.h"

namespace millrace::report::detail {

// Comes after the script of the diagrams, and uses that script's names. When the page reloads itself, it keeps the settings that
// its reader made.
constinit const std::string_view kPageScript = R"(
const slider=(where,word,most,value,text,act)=>{
 const label=document.createElement('label'),input=document.createElement('input'),output=document.createElement('output');
 Object.assign(input,{type:'range',min:0,max:most,value});
 const show=()=>{output.textContent=text(+input.value)};
 input.addEventListener('input',()=>{act(+input.value);show();keep()});
 label.append(word,input,output);where.append(label);show();return {label,input,show}};

const controls=document.getElementById('controls');
if(controls&&figures.length){
 controls.querySelectorAll('button.run').forEach(b=>{
  const show=()=>b.setAttribute('aria-pressed',!state.hidden.includes(b.textContent));
  b.title='hide or show this run';show();
  b.addEventListener('click',()=>{
   const name=b.textContent;
   state.hidden=state.hidden.includes(name)?state.hidden.filter(n=>n!==name):[...state.hidden,name];
   show();keep();showPictures();drawAll()})});
 const smoothing=slider(controls,'Smoothing',99,Math.round(100*(state.smooth||0)),
  v=>state.smooth===null?'auto':v?(v/100).toFixed(2):'off',v=>{state.smooth=v/100;drawAll()});
 smoothing.label.title='auto: a mean over curves that would look like a band; double-click for it';
 smoothing.label.addEventListener('dblclick',()=>{state.smooth=null;smoothing.input.value=0;smoothing.show();keep();drawAll()});
}

const pictures=[...document.querySelectorAll('figure.picture')];
const pictureSteps=[...new Set(pictures.flatMap(f=>[...f.querySelectorAll('img')].map(i=>+i.dataset.step)))].filter(s=>s>=0).sort((a,b)=>a-b);
// Of each picture the newest one until the chosen step, or its first.
const showPictures=()=>{
 const step=state.step===null?Infinity:state.step;
 for(const figure of pictures){
  const images=[...figure.querySelectorAll('img')];
  const shown=images.filter(i=>+i.dataset.step<=step).pop()||images[0];
  images.forEach(i=>i.hidden=i!==shown);
  figure.hidden=state.hidden.includes(runs[figure.dataset.run]);
  figure.querySelector('.when').textContent=+shown.dataset.step<0?'':'step '+(+shown.dataset.step).toLocaleString('en')}};
const stepControls=document.getElementById('steps');
if(stepControls&&pictureSteps.length>1){
 const last=pictureSteps.length-1,at=state.step===null?-1:pictureSteps.indexOf(state.step);
 slider(stepControls,'Step',last,at<0?last:at,v=>pictureSteps[v].toLocaleString('en'),
  v=>{state.step=v===last?null:pictureSteps[v];showPictures()});
}
showPictures();drawAll();

document.querySelectorAll('details').forEach(d=>{
 const name=d.querySelector('summary').textContent.replace(/^\d+ /,'');
 if(state.open[name])d.open=true;
 d.addEventListener('toggle',()=>{state.open[name]=d.open;keep()})});

const reload=+document.body.dataset.reload;
if(state.scroll&&reload){scrollTo(...state.scroll)}
state.scroll=null;keep();
if(reload){
 const live=document.querySelector('.live');
 let used=0;addEventListener('pointermove',()=>{used=Date.now()});addEventListener('input',()=>{used=Date.now()});
 const later=seconds=>setTimeout(again,1000*seconds);
 const again=async()=>{
  if(document.hidden||Date.now()-used<3000||String(getSelection())){later(1);return}
  if(location.protocol!=='file:'){  // a reload without an answer would leave an empty page
   try{if(!(await fetch(location.pathname,{method:'HEAD'})).ok)throw 0}
   catch{live.textContent=live.textContent.replace(/^live/,'no longer live');later(10);return}}
  state.scroll=[scrollX,scrollY];keep();location.reload()};
 later(reload);
}
)";

}  // namespace millrace::report::detail
