#include "millrace/report/detail/assets.h"

namespace millrace::report::detail {

constinit const std::string_view kStyle = R"(
:root{--bg:#fbfbfa;--card:#fff;--ink:#1c1f23;--soft:#646b75;--line:#e4e6e9;--accent:#1f5fbf;--good:#1b7f4b;--warn:#b25e09;
--s0:#1f5fbf;--s1:#c2570c;--s2:#1b7f4b;--s3:#8b3fb0;--s4:#a3233a;--s5:#0f7c8a}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14161a;--card:#1b1e23;--ink:#e6e8eb;--soft:#9aa2ad;--line:#2d3138;--accent:#7fb0ff;
--good:#5fc592;--warn:#f0a35a;--s0:#7fb0ff;--s1:#f0a35a;--s2:#5fc592;--s3:#c99af0;--s4:#f08a9b;--s5:#5cc9d6}}
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
.gain{color:var(--warn);font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));background:var(--card);border:1px solid var(--line);
border-radius:6px;overflow:hidden;margin:14px 0}
.figures div{padding:10px 14px;box-shadow:0 0 0 .5px var(--line)}.figures b{display:block;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:13px}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:12px 12px 6px;min-width:0}
figcaption{display:flex;justify-content:space-between;gap:10px;font-size:13px;margin-bottom:4px;flex-wrap:wrap}
figcaption b{font-weight:600}.legend{color:var(--soft);display:flex;gap:12px;flex-wrap:wrap}
svg.key{width:16px;height:4px;margin:0 5px 0 0;vertical-align:middle;border-radius:0}
svg.plot{display:block;width:100%;height:auto;touch-action:pan-y;cursor:crosshair}
svg path{fill:none;stroke-width:1.6;stroke-linejoin:round}svg.key path{stroke-width:3}
path.d1{stroke-dasharray:6 3}path.d2{stroke-dasharray:2 2}path.d3{stroke-dasharray:8 2 2 2}
path.raw{stroke-width:1;stroke-opacity:.28;stroke-dasharray:none}path.mean{stroke-width:1.8}
path.c0{stroke:var(--s0)}path.c1{stroke:var(--s1)}path.c2{stroke:var(--s2)}path.c3{stroke:var(--s3)}path.c4{stroke:var(--s4)}path.c5{stroke:var(--s5)}
circle.c0{fill:var(--s0)}circle.c1{fill:var(--s1)}circle.c2{fill:var(--s2)}circle.c3{fill:var(--s3)}circle.c4{fill:var(--s4)}circle.c5{fill:var(--s5)}
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
table{background:none}.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
table.parts{max-width:420px}td:first-child{white-space:nowrap;overflow-wrap:normal}
@media(max-width:520px){table{font-size:13px}th,td{padding-right:8px}td:first-child{white-space:normal}
table.words thead{display:none}table.words tr{display:block;padding:7px 0;border-bottom:1px solid var(--line)}
table.words td{display:block;border:0;padding:0}table.words td:first-child{font-weight:600}table.words td+td+td{color:var(--soft);font-size:13px}}
details{margin-top:10px}summary{cursor:pointer;color:var(--accent)}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:14px}
.pictures img{width:100%;height:auto;display:block;border-radius:3px;background:#fff}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--bg);font-size:12px;line-height:1.4;padding:6px 9px;border-radius:5px;
white-space:pre;font-variant-numeric:tabular-nums;z-index:9}
.note{color:var(--soft);font-size:13px}
@media(max-width:520px){main{padding:18px 14px 40px}h1{font-size:20px}}
@media print{@page{margin:14mm}body{background:#fff;font-size:12px}main{max-width:none;padding:0}h2{break-after:avoid;margin-top:22px}
figure,.verdict,.figures,tr,.two>div{break-inside:avoid}.grid2,.pictures,.two{grid-template-columns:1fr 1fr;gap:10px}table,th{font-size:11px}
.figures{grid-template-columns:repeat(4,1fr)}.bar i,i.key{print-color-adjust:exact;-webkit-print-color-adjust:exact}.by-hand,#tip{display:none}}
)";

}  // namespace millrace::report::detail
