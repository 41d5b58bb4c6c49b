"""How the page looks: one style sheet, for light and dark, narrow and wide, print, and forced colours.

Colours are chosen so that texts keep a contrast of 4.5 to 1 and marks one of 3 to 1 with what is behind them.
"""

STYLE = """
:root{color-scheme:light dark;--bg:#f7f7f4;--card:#fff;--fg:#1c2229;--muted:#566170;--line:#dcdfe3;--soft:#eef0f2;
--solid:#2f6fb3;--stripes:#b35c12;--dots:#8b3d92;--bars:#2f7d56;--grid:#6b6f12;--bad:#b3261e;--good:#23693f;
--link:#1f5f9f;--focus:#1f5f9f}
@media (prefers-color-scheme:dark){:root{--bg:#12161b;--card:#1a1f26;--fg:#e7eaee;--muted:#a3aebb;--line:#333c47;
--soft:#232a33;--solid:#77afe9;--stripes:#e6a35f;--dots:#d596dc;--bars:#7cc79d;--grid:#c9ca6a;--bad:#ff9d94;
--good:#86d3a4;--link:#8fc1f5;--focus:#ffd166}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Open Sans",
"Helvetica Neue",sans-serif;overflow-wrap:anywhere}
main,header,footer,nav{max-width:68rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.75rem}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .25rem;font-weight:650}
h2{font-size:1.25rem;margin:2.75rem 0 .75rem;padding-bottom:.35rem;border-bottom:1px solid var(--line);font-weight:650}
h3{font-size:1rem;margin:0;font-weight:650}
p{margin:.4rem 0 .8rem;max-width:46rem}
.muted,figcaption p,footer,.axes{color:var(--muted)}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--focus);outline-offset:2px;border-radius:2px}
.skip{position:absolute;left:-100rem;top:0;background:var(--card);padding:.6rem 1rem;z-index:1}
.skip:focus{left:.5rem;top:.5rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:1rem 0 0;padding:0;font-size:.95rem}
nav a{display:inline-block;padding:.2rem 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.75rem;margin:1.25rem 0 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem .75rem}
.tiles dt{color:var(--muted);font-size:.85rem}
.tiles dd{margin:0;overflow-wrap:normal;font-size:1.15rem;font-weight:600;line-height:1.35;
font-variant-numeric:tabular-nums}
.tiles small{display:block;font-size:.8rem;font-weight:400;color:var(--muted)}
figure,.box{margin:0 0 1.25rem;background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:1rem 1.1rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:0 1.25rem}
figure{container-type:inline-size}
@container (max-width:34rem){.t2{display:none}}
.pair>figure:last-child:nth-child(odd){grid-column:1/-1}
figcaption p{margin:.15rem 0 .6rem;font-size:.92rem}
.chart{display:grid;grid-template-columns:4.6rem minmax(0,1fr)}
.chart svg,.strip,.share{display:block;width:100%;overflow:visible}
svg text{fill:var(--muted);font-size:12px;font-variant-numeric:tabular-nums}
.axes{display:flex;justify-content:space-between;font-size:.8rem;margin:.1rem 0 .5rem;max-width:none;
gap:1rem;overflow-wrap:normal}
.axes span:first-child{white-space:nowrap}
.axes span:last-child{text-align:right}
.grid-line{stroke:var(--line)}
.mark{stroke:var(--fg);stroke-dasharray:5 3;stroke-width:1.5}
svg .mark-text{fill:var(--fg)}
.b{stroke-width:1}
.solid{fill:var(--solid)}.stripes{fill:url(#stripes)}.dots{fill:url(#dots)}.bars{fill:url(#bars)}.grid{fill:url(#grid)}
.stripes{stroke:var(--stripes)}.dots{stroke:var(--dots)}.bars{stroke:var(--bars)}.grid{stroke:var(--grid)}
.ink-stripes{fill:var(--stripes)}.ink-dots{fill:var(--dots)}.ink-bars{fill:var(--bars)}
.line-grid{stroke:var(--grid);stroke-width:1.6;fill:none}
.soft-stripes,.soft-dots,.soft-bars,.soft-grid{fill:var(--card)}
.sign{stroke:var(--card);stroke-width:1}.restart{fill:var(--fg)}.accident{fill:var(--bad)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;margin:0 0 .5rem;padding:0;font-size:.88rem}
.legend li{display:flex;align-items:center;gap:.4rem}
.defs{position:absolute}
details{font-size:.92rem;margin-top:.25rem}
summary{cursor:pointer;color:var(--link);padding:.2rem 0}
.wide{overflow-x:auto;max-height:26rem;margin:.5rem 0;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;width:100%;font-size:.88rem;background:var(--card);overflow-wrap:normal}
th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid var(--line);vertical-align:top}
thead th{position:sticky;top:0;background:var(--soft);font-weight:600;white-space:nowrap}
tbody tr:last-child td{border-bottom:0}
td{overflow-wrap:anywhere;min-width:5.5rem}
.w{white-space:nowrap}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.n{overflow-wrap:normal;min-width:0}
.share{min-width:6rem;margin-top:.3rem}
.lanes{list-style:none;margin:.5rem 0 0;padding:0}
.lanes li{display:grid;grid-template-columns:15rem minmax(0,1fr) 8rem;gap:.25rem 1rem;align-items:end;padding:.3rem 0;
border-bottom:1px solid var(--line)}
.lanes li:last-child{border:0}
.lanes .n{color:var(--muted);font-size:.88rem}
.findings{list-style:none;margin:0;padding:0}
.findings li{background:var(--card);border:1px solid var(--line);border-left:6px solid var(--muted);border-radius:6px;
padding:.7rem 1rem;margin:0 0 .75rem}
.findings li.bad{border-left-color:var(--bad)}.findings li.todo{border-left-color:var(--stripes)}
.findings p{margin:.1rem 0 .3rem;max-width:none}
.tag{font-weight:650;font-size:.85rem}.bad .tag{color:var(--bad)}
.fine{color:var(--good);font-weight:600}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
.cmd{display:block;background:var(--soft);border-radius:5px;padding:.45rem .7rem;margin:.3rem 0;white-space:pre-wrap;
overflow-wrap:anywhere;user-select:all}
.cmd::before{content:"$ ";color:var(--muted);user-select:none}
.says{display:grid;grid-template-columns:minmax(8rem,14rem) minmax(0,1fr);gap:.3rem 1rem;margin:.6rem 0}
.says dt{color:var(--muted)}.says dd{margin:0}
footer{padding-top:2rem;padding-bottom:3rem;font-size:.9rem}
@media (max-width:40rem){body{font-size:15px}main,header,footer,nav{padding-left:.9rem;padding-right:.9rem}
figure,.box{padding:.8rem .75rem}.chart{grid-template-columns:3.9rem minmax(0,1fr)}
.lanes li{grid-template-columns:minmax(0,1fr) auto}.lanes .strip{grid-column:1/-1;grid-row:2}
.says{grid-template-columns:minmax(0,1fr)}.says dd{margin-bottom:.4rem}
.stack thead{position:absolute;left:-100rem}.stack tr,.stack td{display:block;text-align:left;white-space:normal}
.stack td{border:0;padding:.1rem .7rem}.stack tr{padding:.4rem 0;border-bottom:1px solid var(--line)}
.stack td::before{content:attr(data-is) ": ";color:var(--muted)}}
@media (forced-colors:active){.b{stroke:CanvasText;forced-color-adjust:none}}
@media print{nav,.skip{display:none}figure,.box,.findings li{break-inside:avoid}.wide{max-height:none;overflow:visible}
body{background:#fff}}
""".strip()
