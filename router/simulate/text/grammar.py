"""The sentences of the seeded text: templates per kind of paragraph, and their words."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "who": (
        "Dr. Okafor",
        "Mrs. Lindqvist",
        "the night watch",
        "Prof. Abara",
        "the surveyor",
        "Lt. Marsh",
        "the youngest of the gardeners",
        "Mr. Vane",
        "St. Clair's clerk",
        "the ferry's owner",
    ),
    "did": (
        "measured",
        "painted",
        "carried home",
        "sold",
        "rebuilt",
        "described at length",
        "hid",
        "catalogued",
        "photographed",
        "argued about",
    ),
    "what": (
        "the copper valves",
        "a map of the lower town",
        "three crates of winter apples",
        "the letters from Malmö",
        "an unfinished bridge",
        "the old pump house",
        "a clock without hands",
        "every lamp on the quay",
        "the minutes of the meeting",
    ),
    "when": (
        "before the rain came",
        "on the second Tuesday of March",
        "at approx. 6 p.m.",
        "while the others slept",
        "once the tide had turned",
        "for no reason that was ever found",
        "in less than 48 hours",
        "long after the office had closed",
    ),
    "how": (
        "slowly",
        "with great care",
        "without a word",
        "against all advice",
        "for the last time",
        "as if it were nothing",
    ),
    "place": (
        "Harbour St.",
        "the reading room",
        "No. 7 Mill Lane",
        "the upper lock",
        "Pier 4.B",
        "the greenhouse",
    ),
    "number": ("3.14", "1,204.50", "0.7", "17", "2,048", "99.95", "6", "41,300"),
    "unit": ("kg", "km/h", "litres", "kWh", "per cent", "cm"),
    "year": ("1887", "1931", "1968", "2004", "2019"),
    "refs": ("[3]", "[12, 15, 18]", "[7, cf. 9]", "[21, 24, 27, 30, 33]"),
    "say": ("said", "asked", "whispered", "answered", "called"),
    "speech": (
        "Is it done",
        "We leave at dawn",
        "You promised, e.g. last week",
        "Nobody asked the cook",
        "It weighs 4.5 kg",
        "Then count again",
        "I saw the light go out",
        "Tell Mr. Vane",
    ),
    "mark": (",", "?", "!"),
    "name": ("window", "ledger", "valve", "lantern", "signal", "harvest"),
    "verb": ("total", "merge", "scan", "rank", "trim"),
    "wer": (
        "Frau Dr. Behrens",
        "der alte Müller",
        "die Nachbarin",
        "Herr Prof. Weiß",
        "der Schleusenwärter",
    ),
    "tat": (
        "zählte",
        "öffnete",
        "reparierte",
        "übermalte",
        "vergaß",
        "verkaufte",
    ),
    "was": (
        "die Kisten am Kai",
        "das grüne Tor",
        "zwölf Briefe aus Köln",
        "eine Brücke ohne Geländer",
        "den Schlüssel für Nr. 9",
    ),
    "wann": (
        "am 3. Mai",
        "gegen 18 Uhr",
        "z. B. am Sonntag",
        "kurz vor der Flut",
        "seit 1968",
    ),
    "dare": ("田中さん", "灯台守", "隣の医者", "古い友人", "船長"),
    "nani": ("手紙", "赤い傘", "三冊の本", "港の地図", "壊れた時計"),
    "doko": ("駅の前", "図書館", "川のほとり", "坂の上の店", "第二埠頭"),
    "dou": ("見つけた", "忘れた", "描いた", "修理した", "渡した"),
    "itsu": ("昨日の夕方", "三月五日", "雨の朝", "冬の終わり", "午後六時ごろ"),
}
"""Slot name to its fillings."""

SENTENCES: Final[dict[str, tuple[str, ...]]] = {
    "prose": (
        "{Who} {did} {what} {when}.",
        "{When}, {who} {did} {what} {how}.",
        "Nobody at {place} knew why {who} {did} {what}; it was done {how}.",
        "It was {who} (and nobody else) who {did} {what} {when}.",
        "At {place} there was little to see: {what}, {what}, and a chair.",
        "Why {who} {did} {what} {how} was never explained…",
        "Could {who} have {did} {what} {when}?",
    ),
    "facts": (
        "The scale showed {number} {unit}, i.e. {number} {unit} more than in {year}.",
        "In {year} approx. {number} {unit} went through {place} {refs}.",
        "See Fig. 2 and {refs} for the figures; version {number} is out of date.",
        "{Who} paid $ {number} for {what}, vs. {number} in {year}.",
        "The rate, e.g. {number} {unit} at noon, fell by {number} per cent {when} {refs}.",
    ),
    "dialogue": (
        "“{speech}{mark}” {say} {who}.",
        "“{speech},” {say} {who}, “and {what} with it.”",
        "{Who} looked up. “{speech}?” “{speech}.”",
        "“{speech}! {speech}?” {say} {who} {when}.",
        '"{speech}." {Who} {say} it {how}.',
    ),
    "german": (
        "{Wer} {tat} {was} {wann}.",
        "Doch {wer} {tat} {was}, und zwar {wann}!",
        "„Wer {tat} {was}?“, fragte {wer} leise.",
        "Es kostete {number} € (inkl. MwSt.), das wusste {wer} genau.",
    ),
    "japanese": (
        "{itsu}、{dare}は{doko}で{nani}を{dou}。",
        "「{nani}はどこですか。」と{dare}が聞いた。",
        "{dare}が{nani}を{dou}のは{itsu}だった。",
        "なぜ{doko}に{nani}があるのだろう？",
    ),
}
"""Kind of paragraph to its templates; a capital slot starts a sentence."""

ITEMS: Final[tuple[str, ...]] = (
    "{what} ({number} {unit})",
    "**{place}**: {what}, {when}",
    "`{verb}_{name}()` takes {number} ms",
    "{who}, {how}",
)
"""Templates of list items."""

CODE: Final[tuple[str, ...]] = (
    """\
```python
def {verb}_{name}(items: list[float], limit: float = {number_py}) -> float:
    # Stops early. Nothing after the limit counts.
    total = 0.0
    for item in items:
        if total + item > limit:
            break
        total += item

    return round(total, 2)


print(sum([1.5, 2.25, 3.0]))  # e.g. 6.75
```""",
    """\
```bash
# Count the {name}s, then show the last one.
for f in {name}/*.txt; do
  wc -l "$f" >> {verb}.log
done
tail -n 1 {verb}.log
```""",
)
"""Fenced code blocks."""
