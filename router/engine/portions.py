"""Large events in small portions: a provider that sends a whole answer at once must not hold the
event loop, and all other streams with it, while sentences and values are looked for in it."""

from __future__ import annotations

from msgspec.structs import replace

from router.core.events import Event, Reasoning, Refusal, Text, ToolCall

PORTION_CHARS = 4096
"""Most text that is worked on before others have their turn: a few milliseconds of the boundary."""


def portion(events: list[Event]) -> tuple[list[Event], list[Event]]:
    """Take what may be worked on at once.

    Args:
        events: of one read, in order.

    Returns:
        The events up to the end of a portion, and those that wait; mostly all, and none.
    """
    for at, event in enumerate(events):
        size = len(event.arguments) if type(event) is ToolCall else len(getattr(event, "text", ""))
        if size > PORTION_CHARS:
            head, tail = _cut(event)
            return [*events[:at], head], [tail, *events[at + 1 :]]
    return events, []


def _cut(event: Event) -> tuple[Event, Event]:
    if isinstance(event, ToolCall):
        head, tail = event.arguments[:PORTION_CHARS], event.arguments[PORTION_CHARS:]
        return replace(event, arguments=head), replace(event, id="", name="", arguments=tail)
    if isinstance(event, Text):
        head, tail = event.text[:PORTION_CHARS], event.text[PORTION_CHARS:]
        return replace(event, text=head), replace(event, text=tail, logprobs=None)
    assert isinstance(event, Reasoning | Refusal)  # noqa: S101 - nothing else was measured
    head, tail = event.text[:PORTION_CHARS], event.text[PORTION_CHARS:]
    return replace(event, text=head), replace(event, text=tail)
