#include "millrace/report/detail/assets.h"

namespace millrace::report::detail {

// The colours of series, s0 to s11, are in the order in which they were chosen: each is as far as possible from those before it,
// for normal sight and for three kinds of colour blindness. script.cpp repeats the colours of the light theme.
constinit const std::string_view kStyle = R"(
:root{--bg:#fbfbfa;--card:#fff;--ink:#1c1f23;--soft:#646b75;--line:#e4e6e9;--accent:#1f5fbf;--good:#1b7f4b;--warn:#b25e09;
--s0:#1f5fbf;--s1:#c2570c;--s2:#74003a;--s3:#6ba9bd;--s4:#402584;--s5:#8a5f7c;--s6:#a670f3;--s7:#d98b09;--s8:#b01003;--s9:#fc6183;--s10:#364d73;--s11:#3788bb}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14161a;--card:#1b1e23;--ink:#e6e8eb;--soft:#9aa2ad;--line:#2d3138;--accent:#7fb0ff;
--good:#5fc592;--warn:#f0a35a;--s0:#7fb0ff;--s1:#f0a35a;--s2:#d03275;--s3:#76fef6;--s4:#7d5be6;--s5:#eeef08;--s6:#b28324;--s7:#eb6f9a;--s8:#a3d1b7;--s9:#7087d5;--s10:#baf9ac;--s11:#59d6fa}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:24px;line-height:1.25;margin:0 0 2px;font-weight:650;letter-spacing:-.01em}
h2{font-size:16px;margin:34px 0 12px;font-weight:650}
.sub{color:var(--soft);margin:0 0 18px;overflow-wrap:anywhere}
.verdict{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--good);border-radius:6px;padding:14px 18px;margin:14px 0}
.verdict.mend{border-left-color:var(--warn)}
.verdict p{margin:0}.verdict ol{margin:8px 0 0;padding-left:22px}.verdict li{margin:6px 0}
.verdict code{overflow-wrap:anywhere;background:var(--bg);border:1px solid var(--line);border-radius:4px;padding:1px 5px;font-size:13px}
.gain{color:var(--warn);font-weight:600;white-space:nowrap}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));background:var(--card);border:1px solid var(--line);
border-radius:6px;overflow:hidden;margin:14px 0}
.figures div{padding:10px 14px;box-shadow:0 0 0 .5px var(--line)}.figures b{display:block;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums}
.figures b{white-space:nowrap}.figures span,.figures i{display:block;color:var(--soft);font-size:13px;overflow-wrap:anywhere}.figures i{font-style:normal;font-size:12px}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:14px}
figure{position:relative;margin:0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:12px 12px 6px;min-width:0}
figcaption{display:flex;gap:4px 10px;font-size:13px;margin-bottom:4px;flex-wrap:wrap;align-items:baseline}
figcaption b{font-weight:600;margin-right:auto;overflow-wrap:anywhere}
.legend{color:var(--soft);display:flex;gap:2px 12px;flex-wrap:wrap;flex-basis:100%;max-height:5.4em;overflow-y:auto}
button{font:inherit;color:var(--soft);background:none;border:0;padding:0;cursor:pointer}
.tools{display:flex;gap:9px;font-size:12px}.tools button:hover{color:var(--ink)}.tools button[aria-pressed=true]{color:var(--ink);text-decoration:underline;text-underline-offset:3px}
.controls{position:sticky;top:0;z-index:5;display:flex;flex-wrap:wrap;gap:4px 18px;align-items:center;background:var(--bg);padding:6px 0;margin-bottom:6px;font-size:13px;color:var(--soft)}
.controls:empty{display:none}#steps{position:static}
.controls label{display:flex;gap:8px;align-items:center;margin-left:auto}#steps label{margin-left:0}.controls input{width:140px;accent-color:var(--accent)}
.controls output{min-width:2.8em;font-variant-numeric:tabular-nums}
.run{color:var(--ink)}.run[aria-pressed=false]{opacity:.4;text-decoration:line-through}
.now{position:absolute;right:30px;bottom:34px;display:flex;gap:8px;font-size:11px;background:var(--card);opacity:.9;padding:0 4px;pointer-events:none;white-space:nowrap;font-variant-numeric:tabular-nums}
.now[hidden],.pictures img[hidden],figure[hidden]{display:none}.when{color:var(--soft);font-variant-numeric:tabular-nums}.live{color:var(--good)}
.c0{--s:var(--s0)}.c1{--s:var(--s1)}.c2{--s:var(--s2)}.c3{--s:var(--s3)}.c4{--s:var(--s4)}.c5{--s:var(--s5)}.c6{--s:var(--s6)}.c7{--s:var(--s7)}.c8{--s:var(--s8)}.c9{--s:var(--s9)}.c10{--s:var(--s10)}.c11{--s:var(--s11)}.now span{color:var(--s)}
svg.key{width:16px;height:4px;margin:0 5px 0 0;vertical-align:middle;border-radius:0}
figure.curve{display:flex;flex-direction:column}svg.plot{display:block;margin-top:auto;width:100%;height:auto;touch-action:pan-y;cursor:crosshair}
svg path{fill:none;stroke-width:1.6;stroke-linejoin:round}svg.key path{stroke-width:3}
path.d1{stroke-dasharray:6 3}path.d2{stroke-dasharray:2 2}path.d3{stroke-dasharray:8 2 2 2}
path.raw{stroke-width:1;stroke-opacity:.28;stroke-dasharray:none}path.mean{stroke-width:1.8}
path[class^=c]{stroke:var(--s)}circle[class^=c]{fill:var(--s)}
path.soft{stroke:var(--soft)}circle.ring{fill:none;stroke:var(--s);stroke-width:1.6}
.best{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3;opacity:.7}
.grid{stroke:var(--line);stroke-width:1}.mark{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
.at{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}.pick{fill:var(--accent);opacity:.14}
.bar{display:flex;height:26px;border-radius:5px;overflow:hidden;margin-bottom:10px;background:var(--line)}
.bar i{display:block;min-width:1px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px;vertical-align:-1px}
.b0{background:#1f5fbf}.b1{background:#5b8fd8}.b2{background:#1b7f4b}.b3{background:#c2570c}.b4{background:#8b3fb0}.b5{background:#0f7c8a}.b6{background:#a3233a}.b7{background:#8a919c}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:24px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;background:var(--card)}
th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
table{background:none}.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}th.n{white-space:normal;vertical-align:bottom;overflow-wrap:normal}
table.parts{max-width:420px}td:first-child{white-space:nowrap;overflow-wrap:normal}
@media(max-width:520px){table{font-size:13px}th,td{padding-right:8px}td:first-child{white-space:normal}
table.words thead{display:none}table.words tr{display:block;padding:7px 0;border-bottom:1px solid var(--line)}
table.words td{display:block;border:0;padding:0}table.words td:first-child{font-weight:600}table.words td+td+td{color:var(--soft);font-size:13px}}
details{margin-top:10px}summary{cursor:pointer;color:var(--accent)}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:14px;align-items:start}
.pictures.side{grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr))}.pictures+.pictures{margin-top:14px}
.pictures img{width:100%;height:auto;display:block;border-radius:3px;background:#fff}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--bg);font-size:12px;line-height:1.4;padding:6px 9px;border-radius:5px;
white-space:pre;font-variant-numeric:tabular-nums;z-index:9}
.note{color:var(--soft);font-size:13px}
@media(max-width:520px){main{padding:18px 14px 40px}h1{font-size:20px}}
@media print{@page{margin:14mm}body{background:#fff;font-size:12px}main{max-width:none;padding:0}h2{break-after:avoid;margin-top:22px}
figure,.verdict,.figures,tr,.two>div{break-inside:avoid}.grid2,.pictures,.two{grid-template-columns:1fr 1fr;gap:10px}table,th{font-size:11px}
.figures{grid-template-columns:repeat(4,1fr)}.bar i,i.key{print-color-adjust:exact;-webkit-print-color-adjust:exact}.by-hand,#tip,.tools,.now,.controls label{display:none}.controls{position:static;background:none}.scroll{overflow:visible}.scroll table,.scroll th{font-size:10px}.scroll th,.scroll td{padding-right:6px}.note{font-size:11px}}
)";

}  // namespace millrace::report::detail
