"""The style sheet of a report: quiet, light and dark, from narrow to wide. A value."""

from __future__ import annotations

__all__ = ["LEVELS", "STYLE"]

# One hue from light to dark: people tell the steps apart however they see colours, and in print.
_HEAT_LIGHT = ("#eaf2fa", "#cfe1f2", "#a8cbe6", "#74aed7", "#4189c0", "#1f67a5", "#0b447d")
_HEAT_DARK = ("#18232e", "#1b3044", "#1d4363", "#215c89", "#2f7ab3", "#57a1d6", "#9ccbf0")
LEVELS = len(_HEAT_LIGHT)

_LIGHT = "--bg:#ffffff;--fg:#1c2530;--quiet:#586573;--line:#dde3e9;--soft:#f5f7f9;--mark:#1f67a5;--error:#b3261e;--warning:#8a5a00;--info:#586573;"
_DARK = "--bg:#11161b;--fg:#e4e9ee;--quiet:#9aa7b4;--line:#2b343d;--soft:#181f26;--mark:#57a1d6;--error:#ff8f85;--warning:#e8b04a;--info:#9aa7b4;"
# From these steps on the text changes its colour.
_INK_LIGHT, _INK_DARK = 4, 5


def _theme(prefix: str, colours: str, heat: tuple[str, ...], flip: int, inks: tuple[str, str]) -> str:
    levels = "".join(f"--h{i}:{colour};--i{i}:{inks[i >= flip]};" for i, colour in enumerate(heat))
    return f"{prefix}.kartothek-report{{{colours}{levels}}}"


_LIGHT_THEME = (_LIGHT, _HEAT_LIGHT, _INK_LIGHT, ("#1c2530", "#ffffff"))
_DARK_THEME = (_DARK, _HEAT_DARK, _INK_DARK, ("#e4e9ee", "#0b1015"))

_RULES = """
.kartothek-report{background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;
font-variant-numeric:tabular-nums;box-sizing:border-box;max-width:1160px;margin:0 auto;padding:28px 24px 40px;text-align:left;overflow-wrap:anywhere}
.kartothek-report *{box-sizing:border-box}
.kartothek-report h1{font-size:24px;line-height:1.25;margin:0;font-weight:650}
.kartothek-report h2{font-size:17px;margin:40px 0 4px;padding-top:16px;border-top:1px solid var(--line);font-weight:650}
.kartothek-report h3{font-size:14px;margin:20px 0 6px;font-weight:650}
.kartothek-report p{margin:2px 0 10px;max-width:72ch}
.kartothek-report .quiet,.kartothek-report figcaption{color:var(--quiet)}
.kartothek-report code{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;background:var(--soft);
padding:1px 4px;border-radius:3px}
.kartothek-report .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:1px;padding:1px;margin:20px 0 0}
.kartothek-report .tiles div{box-shadow:0 0 0 1px var(--line);padding:10px 14px}
.kartothek-report .tiles :is(dt,dd){float:none;width:auto;margin:0;padding:0}
.kartothek-report .tiles dt{color:var(--quiet);font-size:12.5px;font-weight:400}
.kartothek-report .tiles dd{font-size:17px;line-height:1.35;font-weight:600}
.kartothek-report .scroll{overflow-x:auto;max-width:100%}
.kartothek-report table{border-collapse:collapse;table-layout:auto;width:100%;margin:6px 0 0;font-size:13px;color:inherit;border:0}
.kartothek-report :is(th,td){text-align:left;vertical-align:top;padding:5px 14px 5px 0;border:0;border-bottom:1px solid var(--line);background:none;
color:inherit;overflow-wrap:break-word;white-space:normal;max-width:none}
.kartothek-report :is(tr,tbody tr){background:none}
.kartothek-report th{font-weight:600;color:var(--quiet);vertical-align:bottom;white-space:nowrap}
.kartothek-report tfoot td{font-weight:600}
.kartothek-report .n{text-align:right;white-space:nowrap}
.kartothek-report .tag{font-size:11.5px;color:var(--quiet);border:1px solid var(--line);border-radius:3px;padding:0 4px;margin-left:4px;white-space:nowrap}
.kartothek-report .advice{list-style:none;margin:10px 0 0;padding:0}
.kartothek-report .advice li{border-left:3px solid var(--line);padding:2px 0 4px 12px;margin:0 0 12px}
.kartothek-report .advice li.error{border-color:var(--error)}
.kartothek-report .advice li.warning{border-color:var(--warning)}
.kartothek-report .error>b:first-child{color:var(--error)}
.kartothek-report .warning>b:first-child{color:var(--warning)}
.kartothek-report .advice .call{display:block;margin-top:3px}
.kartothek-report .maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:8px 40px}
.kartothek-report figure{margin:8px 0 0;min-width:0}
.kartothek-report figcaption{font-size:12.5px;margin:6px 0}
.kartothek-report .heat table{border-collapse:separate;border-spacing:2px;width:auto}
.kartothek-report .heat :is(th,td){border:0;padding:3px 8px;white-space:nowrap;font-size:12.5px;vertical-align:middle}
.kartothek-report .heat th[scope=row]{text-align:left;font-weight:400;color:var(--fg);padding-left:0;white-space:normal;min-width:9em;
max-width:18em;overflow-wrap:anywhere}
.kartothek-report .heat td{text-align:right;border-radius:3px;min-width:78px}
.kartothek-report .heat .none{color:var(--quiet);outline:1px dashed var(--line);outline-offset:-1px}
.kartothek-report .scale{display:inline-flex;vertical-align:-1px;margin:0 6px;border-radius:2px;overflow:hidden}
.kartothek-report .scale i{width:16px;height:10px;display:block}
.kartothek-report .bar{display:flex;align-items:center;gap:10px;min-width:150px;min-height:1.5em}
.kartothek-report .bar span{flex:none;width:4.6em;text-align:right;white-space:nowrap}
.kartothek-report .bar b{flex:1;height:12px}
.kartothek-report .bar i{display:block;height:100%;border-radius:2px;background:var(--mark);min-width:1px}
.kartothek-report .sizes td:nth-child(-n+2){width:1%}
.kartothek-report .spark{min-width:160px;width:100%}
.kartothek-report svg{display:block;width:100%;height:36px;overflow:visible}
.kartothek-report svg .area{fill:var(--mark);opacity:.16}
.kartothek-report svg .step{fill:none;stroke:var(--mark);stroke-width:1.5;vector-effect:non-scaling-stroke}
.kartothek-report details{margin:8px 0}
.kartothek-report summary{cursor:pointer;color:var(--quiet)}
.kartothek-report td details{margin:0}
@media (max-width:560px){.kartothek-report{padding:20px 14px 28px}.kartothek-report h1{font-size:20px}.kartothek-report .tiles{grid-template-columns:1fr 1fr}}
@media print{.kartothek-report{max-width:none}}
"""

STYLE = "\n".join(
    [
        _theme("", *_LIGHT_THEME),
        f"@media (prefers-color-scheme:dark){{{_theme('', *_DARK_THEME)}}}",
        # A notebook has a theme of its own.
        _theme("[data-jp-theme-light=true] ", *_LIGHT_THEME),
        _theme("[data-jp-theme-light=false] ", *_DARK_THEME),
        # A notebook has rules for everything that it shows, with a class and a position; ours count as much, and come later.
        _RULES.strip().replace(".kartothek-report", ".kartothek-report.kartothek-report"),
        *(f".kartothek-report .heat .h{i},.kartothek-report .scale .h{i}{{background:var(--h{i});color:var(--i{i})}}" for i in range(LEVELS)),
    ]
)
