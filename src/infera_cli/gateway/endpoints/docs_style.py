"""The looks of `/docs`: system fonts, light and dark, no images."""

from __future__ import annotations

CSS = """
:root{--ink:#1c2128;--soft:#59636e;--line:#d8dee4;--paper:#fff;--tint:#f5f7f9;--get:#0a6b4b;--post:#1f5bb5}
@media (prefers-color-scheme:dark){:root{--ink:#e2e6ea;--soft:#9aa4ae;--line:#343b43;--paper:#14181c;
--tint:#1d2329;--get:#4cc79b;--post:#7fb0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main{max-width:56rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.6rem;margin:0}
h2{font-size:1.1rem;margin:2rem 0 0;text-transform:capitalize}
h3{font-size:.8rem;margin:.9rem 0 .25rem;color:var(--soft);text-transform:uppercase;letter-spacing:.05em}
p{margin:.25rem 0 .6rem;color:var(--soft)}
nav{display:flex;flex-wrap:wrap;gap:.4rem 1rem;padding:.5rem 0 1rem;border-bottom:1px solid var(--line)}
a{color:var(--post)}
code,pre,summary b{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.86rem}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0;background:var(--paper)}
summary{display:flex;flex-wrap:wrap;align-items:baseline;gap:.2rem .8rem;padding:.5rem .8rem;cursor:pointer}
summary:hover,summary:focus-visible{background:var(--tint)}
summary b{width:3rem;color:var(--get)}
summary b.post{color:var(--post)}
summary span{color:var(--soft);margin-left:auto}
details>div{padding:.2rem .8rem .8rem;border-top:1px solid var(--line)}
table{border-collapse:collapse;width:100%}
td{padding:.2rem .8rem .2rem 0;vertical-align:top}
td:first-child{white-space:nowrap;width:1%}
pre{background:var(--tint);padding:.6rem .8rem;border-radius:4px;overflow-x:auto;margin:0;
white-space:pre-wrap;overflow-wrap:anywhere}
"""
