"""Anthropic's format: through the vendor's own client, by its bytes, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import anthropic
import pytest
from formats_kit import ANTHROPIC, deltas, named_events
from simulate_kit import Reply, connect

from router.core.continuation import Style
from router.core.events import ToolCall
from router.simulate import REFUSALS, Conduct, Faults, Script, SimulatedProvider, tokenize

TEXT = "Dr. Vane left at 6 p.m. “Why?” asked nobody. Zwölf Äpfel、三冊。 The end."
CALLS = (
    ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 500, "to": "Vane"}'),
    ToolCall(index=1, id="call_2", name="look", arguments="{}"),
)
SCRIPT = Script(text=TEXT, reasoning="Let me see. Yes.", tool_calls=CALLS)
TOOLS: list[dict[str, Any]] = [
    {"name": name, "input_schema": {"type": "object"}} for name in ("pay", "look")
]
ASKED: dict[str, Any] = {
    "model": "sim",
    "max_tokens": 2_048,
    "messages": [{"role": "user", "content": "Tell me everything."}],
}
THINKING: dict[str, Any] = {"type": "enabled", "budget_tokens": 1_024}
ALL: dict[str, Any] = ASKED | {"thinking": THINKING, "tools": TOOLS}


def sim(faults: Faults | None = None, **settings: Any) -> SimulatedProvider:  # noqa: ANN401 - any of the provider's settings
    return SimulatedProvider(script=settings.pop("script", SCRIPT), faults=faults, **settings)


def client(provider: SimulatedProvider) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="k", base_url=provider.origin, max_retries=0)


async def test_the_vendors_client_reads_a_stream() -> None:
    async with sim() as provider, client(provider) as its:
        async with its.messages.stream(**ALL) as stream:
            message = await stream.get_final_message()
        whole = await its.messages.create(**ALL)
        for answer in (message, whole):
            thought, text, pay, look = answer.content
            assert isinstance(thought, anthropic.types.ThinkingBlock)
            assert (thought.thinking, thought.signature != "") == (SCRIPT.reasoning, True)
            assert isinstance(text, anthropic.types.TextBlock)
            assert text.text == TEXT
            assert isinstance(pay, anthropic.types.ToolUseBlock)
            assert (pay.id, pay.name, pay.input) == ("call_1", "pay", {"amount": 500, "to": "Vane"})
            assert isinstance(look, anthropic.types.ToolUseBlock)
            assert look.input == {}
            assert (answer.stop_reason, answer.stop_sequence) == ("tool_use", None)
            record = provider.requests[-1]
            assert answer.usage.output_tokens == record.tokens_sent
            assert (record.tools, record.thinking) == (("pay", "look"), True)
            assert record.headers["authorization"] == "Bearer k"


async def test_the_vendors_client_counts_and_goes_on_with_what_it_was_told() -> None:
    async with sim() as provider, client(provider) as its:
        count = await its.messages.count_tokens(model="sim", messages=ASKED["messages"])
        assert count.input_tokens == 4 + len(tokenize("Tell me everything."))
        first = await its.messages.create(**ALL)
        assert first.usage.input_tokens == count.input_tokens
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": "Paid."} for c in CALLS]
        going_on = [
            *ASKED["messages"],
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        again = await its.messages.create(**(ALL | {"messages": going_on}))
        assert again.content == first.content
        assert provider.requests[-1].messages == 3


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("status=529", anthropic.APIStatusError),
        ("rate_limit", anthropic.RateLimitError),
        ("unauthorized", anthropic.AuthenticationError),
        ("no_model", anthropic.NotFoundError),
        ("context_length", anthropic.BadRequestError),
        ("content_policy", anthropic.BadRequestError),
        ("error@3,status=529", anthropic.APIStatusError),
    ],
)
async def test_the_vendors_client_knows_its_errors(
    fault: str, error: type[anthropic.APIStatusError]
) -> None:
    async with sim(fault) as provider, client(provider) as its:
        with pytest.raises(error) as caught:
            async for _ in await its.messages.create(**ASKED, stream=True):
                pass
        body = cast("dict[str, Any]", caught.value.body)
        assert body["type"] == "error"
        assert provider.requests[0].fault is not None


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        ("status=529", 529, "overloaded_error", "Overloaded"),
        ("status=500", 500, "api_error", "Internal server error"),
        ("status=503,message=Gone", 503, "api_error", "Gone"),
        ("status=429,type=odd", 429, "odd", "This request would exceed your organization"),
        ("unauthorized", 401, "authentication_error", "invalid x-api-key"),
        ("no_model,message=None", 404, "not_found_error", "None"),
        ("context_length", 400, "invalid_request_error", "prompt is too long"),
    ],
)
async def test_errors_are_the_vendors(fault: str, status: int, kind: str, message: str) -> None:
    async with sim(f"{fault},retry_after=2") as provider:
        reply = await ANTHROPIC.ask(provider)
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["type"]) == (status, kind)
        assert error["message"].startswith(message)
        assert reply.headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'),
        ("event", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'),
        ("object", b'\n\ndata: {"error":{"type":"overloaded_error","message":"Overloaded"}}'),
        ("string", b'\n\ndata: {"error":"Overloaded"}'),
        ("flat", b'\n\ndata: {"error":"Overloaded","error_type":"overloaded_error"}'),
        ("field", b'\n\nerror: {"type":"overloaded_error"'),
    ],
)
async def test_an_error_in_the_stream(form: str, shown: bytes) -> None:
    async with sim(f"error@3,status=529,form={form}") as provider:
        assert shown in (await ANTHROPIC.ask(provider)).body


async def test_the_events_of_a_stream() -> None:
    async with sim() as provider:
        reply = await ANTHROPIC.ask(provider, thinking=THINKING)
        names = [name for name, _ in named_events(reply)]
        assert names == [data["type"] for _, data in named_events(reply)]
        shape = [name for name in names if name != "content_block_delta"]
        block = ["content_block_start", "content_block_stop"]
        assert shape == [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_stop",
            *block * 3,
            "message_delta",
            "message_stop",
        ]
        events = named_events(reply)
        starts = [data["index"] for name, data in events if name == "content_block_start"]
        assert starts == [0, 1, 2, 3]
        pieces = [delta["partial_json"] for delta in deltas(reply, "input_json_delta")]
        assert "".join(pieces) == CALLS[0].arguments + CALLS[1].arguments
        assert len(deltas(reply, "signature_delta")) == 1


async def test_a_thought_that_was_cut_off_has_no_signature() -> None:
    spoken = len(tokenize(SCRIPT.reasoning))
    async with sim([f"cut@{spoken}", f"cut@{spoken + 1}"]) as provider:
        for signatures in (0, 1):
            reply = await ANTHROPIC.ask(provider, thinking=THINKING)
            assert len(deltas(reply, "thinking_delta")) == spoken
            assert len(deltas(reply, "signature_delta")) == signatures


@pytest.mark.parametrize("model", ["sim", "claude-sonnet-4-6", "claude-opus-4-8"])
async def test_thinking_is_said_only_where_it_is_wanted(model: str) -> None:
    async with sim() as provider:
        adaptive = {"type": "adaptive"}
        assert not deltas(await ANTHROPIC.ask(provider, model=model), "thinking_delta")
        for display, shown in ({}, "4-8" not in model), ({"display": "omitted"}, False):
            reply = await ANTHROPIC.ask(provider, model=model, thinking=adaptive | display)
            assert bool(deltas(reply, "thinking_delta")) is shown
            assert len(deltas(reply, "signature_delta")) == 1


@pytest.mark.parametrize(
    ("fields", "text", "reason", "matched"),
    [
        ({"max_tokens": 5}, "".join(tokenize(TEXT)[:5]), "max_tokens", None),
        (
            {"stop_sequences": ["nobody", "Why"]},
            "Dr. Vane left at 6 p.m. “",
            "stop_sequence",
            "Why",
        ),
    ],
)
async def test_why_an_answer_ends(
    fields: dict[str, Any], text: str, reason: str, matched: str | None
) -> None:
    async with sim() as provider:
        for stream in (True, False):
            reply = await ANTHROPIC.ask(provider, stream=stream, **fields)
            end = named_events(reply)[-2][1]["delta"] if stream else json.loads(reply.body)
            said = "".join(ANTHROPIC.pieces(reply)) if stream else ANTHROPIC.text(end)
            assert said == text
            assert (end["stop_reason"], end["stop_sequence"]) == (reason, matched)


async def test_a_filter_refuses_with_details() -> None:
    async with sim("filtered@2") as provider:
        end = named_events(await ANTHROPIC.ask(provider))[-2][1]["delta"]
        assert (end["stop_reason"], end["stop_details"]["type"]) == ("refusal", "refusal")


async def test_what_stands_before_a_mark_is_read_from_the_cache() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "Be brief.", **mark}]
    async with sim() as provider:
        reply = await ANTHROPIC.ask(provider, system=system)
        usage = named_events(reply)[-2][1]["usage"]
        assert usage["cache_read_input_tokens"] == 4 + len(tokenize("Be brief."))
        assert usage["input_tokens"] == 4 + len(tokenize("Tell me everything."))
        start = named_events(reply)[0][1]["message"]["usage"]
        assert start == usage | {"output_tokens": 1}


async def test_a_document_is_said_when_json_is_wanted() -> None:
    schema = {"type": "object", "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    async with sim(script=Script(text=TEXT, json_text='{"age": 36}')) as provider:
        reply = await ANTHROPIC.ask(provider, output_config={"format": form, "effort": "low"})
        assert "".join(ANTHROPIC.pieces(reply)) == '{"age": 36}'
        beta = {"anthropic-beta": "structured-outputs-2025-11-13"}
        old = await ANTHROPIC.ask(provider, _headers=beta, output_format=form)
        assert "".join(ANTHROPIC.pieces(old)) == '{"age": 36}'


USER = {"role": "user", "content": "Tell me everything."}
HALF = {"role": "assistant", "content": "Dr. Vane left"}


async def asked(provider: SimulatedProvider, *messages: object, **fields: Any) -> Reply:  # noqa: ANN401 - any of the format's fields
    return await ANTHROPIC.ask(provider, messages=[USER, *messages], **fields)


@pytest.mark.parametrize(
    ("messages", "style"),
    [
        ([HALF], Style.ASSISTANT_TAIL),
        ([{"role": "assistant", "content": "Dr."}, HALF | {"content": " Vane left"}], None),
        ([HALF | {"content": [{"type": "text", "text": "Dr. Vane left"}]}], Style.ASSISTANT_TAIL),
        ([HALF, {"role": "user", "content": "Continue."}], Style.INSTRUCT),
    ],
)
async def test_a_prefix_is_continued_and_remembered(
    messages: list[dict[str, Any]], style: Style | None
) -> None:
    async with sim(script=Script(text=TEXT)) as provider:
        reply = await asked(provider, *messages)
        assert "Dr. Vane left" + "".join(ANTHROPIC.pieces(reply)) == TEXT
        record = await provider.wait_ended()
        assert (record.prefix, record.found) == ("Dr. Vane left", True)
        assert record.style is (style or Style.ASSISTANT_TAIL)


async def test_a_conduct_is_the_same_in_every_format() -> None:
    async with sim(script=Script(text=TEXT), conduct=Conduct(prefix="echo")) as provider:
        assert "".join(ANTHROPIC.pieces(await asked(provider, HALF))) == TEXT


@pytest.mark.parametrize(
    ("fields", "conduct"),
    [
        ({"model": "claude-opus-4-6"}, Conduct()),
        ({"model": "claude-sonnet-5"}, Conduct()),
        ({"model": "claude-haiku-4-5"}, Conduct(prefix="refuse")),
        ({"thinking": {"type": "adaptive"}}, Conduct()),
    ],
)
async def test_a_newer_model_takes_no_prefix(fields: dict[str, Any], conduct: Conduct) -> None:
    async with sim(script=Script(text=TEXT), conduct=conduct) as provider:
        reply = await asked(provider, HALF, **fields)
        assert (reply.status, reply.message) == (400, REFUSALS["anthropic"])
        told = await asked(provider, HALF, {"role": "user", "content": "Go on."}, **fields)
        assert "Dr. Vane left" + "".join(ANTHROPIC.pieces(told)) == TEXT


async def test_an_older_model_takes_one() -> None:
    async with sim(script=Script(text=TEXT)) as provider:
        for model in ("claude-sonnet-4-5-20250929", "claude-opus-4-20250514", "claude-3-5-haiku"):
            assert (await asked(provider, HALF, model=model)).status == 200


async def test_the_answers_of_tools_are_no_nudge() -> None:
    turns = [
        {"role": "assistant", "content": [{"type": "text", "text": "Dr. Vane"}, USE]},
        {"role": "user", "content": [RESULT]},
    ]
    async with sim(script=Script(text=TEXT)) as provider:
        assert "".join(ANTHROPIC.pieces(await asked(provider, *turns))) == TEXT


USE = {"type": "tool_use", "id": "call_1", "name": "pay", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "Paid."}
SCHEMA = {"type": "object", "additionalProperties": False}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no bound", {"max_tokens": None}, "max_tokens: Field required"),
    ("bound", {"max_tokens": 0}, "max_tokens: must be greater than or equal to 1"),
    ("no words", {"messages": []}, "messages: at least one message is required"),
    ("unknown", {"n": 2}, "n: Extra inputs are not permitted"),
    ("openai", {"max_completion_tokens": 2}, "max_completion_tokens: Extra inputs are not"),
    ("beta only", {"context_management": {}}, "context_management: Extra inputs are not"),
    ("metadata", {"metadata": {"a": "b"}}, "metadata.a: Extra inputs are not permitted"),
    ("system", {"system": [{"type": "text", "text": ""}]}, "system: text content blocks must be"),
    ("hot", {"temperature": 1.5}, "temperature: range: 0..1"),
    ("stop", {"stop_sequences": ["\n"]}, "stop_sequences: each stop sequence must contain non-w"),
    ("empty stop", {"stop_sequences": [""]}, "stop_sequences: each stop sequence must be non-"),
    (
        "both",
        {"model": "claude-sonnet-4-5", "temperature": 0.5, "top_p": 0.5},
        "`temperature` and `top_p` cannot both be specified for this model.",
    ),
    (
        "sampling",
        {"model": "claude-opus-4-7", "temperature": 0.5},
        "`temperature` is deprecated for this model.",
    ),
    ("tool", {"tools": [{"type": "function"}]}, "tools.0: Input tag 'function' found using 'type'"),
    (
        "tool field",
        {"tools": [TOOLS[0] | {"parameters": {}}]},
        "tools.0.custom.parameters: Extra inputs are not permitted",
    ),
    (
        "tool name",
        {"tools": [TOOLS[0] | {"name": "a b"}]},
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    ("tool schema", {"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
    (
        "tool type",
        {"tools": [{"name": "a", "input_schema": {}}]},
        "tools.0.custom.input_schema.type: Field required",
    ),
    (
        "tool union",
        {"tools": [{"name": "a", "input_schema": {"type": "object", "anyOf": []}}]},
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf",
    ),
    ("twice", {"tools": [TOOLS[0], TOOLS[0]]}, "tools: Tool names must be unique."),
    ("choice", {"tool_choice": {"type": "auto"}}, "tool_choice: tool_choice may only be specified"),
    ("choice word", {"tool_choice": "auto"}, "tool_choice: Input tag 'auto' found using 'type'"),
    (
        "choice name",
        {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "sing"}},
        "tool_choice: Tool 'sing' not found in provided tools",
    ),
    (
        "forced thought",
        {"tools": TOOLS, "tool_choice": {"type": "any"}, "thinking": THINKING},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    (
        "budget",
        {"max_tokens": 1_024, "thinking": THINKING},
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    (
        "small budget",
        {"thinking": THINKING | {"budget_tokens": 1}},
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        "budget's end",
        {"model": "claude-opus-4-7", "thinking": THINKING},
        '"thinking.type.enabled" is not supported for this model.',
    ),
    (
        "not yet adaptive",
        {"model": "claude-haiku-4-5", "thinking": {"type": "adaptive"}},
        "adaptive thinking is not supported on this model",
    ),
    (
        "cold thought",
        {"temperature": 0, "thinking": THINKING},
        "`temperature` may only be set to 1 when thinking is enabled.",
    ),
    (
        "open schema",
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly",
    ),
    (
        "bounded schema",
        {
            "output_config": {
                "format": {
                    "type": "json_schema",
                    "schema": SCHEMA
                    | {"properties": {"n": {"type": "number", "minimum": 0, "maximum": 1}}},
                }
            }
        },
        "output_config.format.schema: For 'number' type, properties maximum, minimum are not",
    ),
    (
        "json object",
        {"output_config": {"format": {"type": "json_object"}}},
        "output_config.format.type: Input should be 'json_schema'",
    ),
]


@pytest.mark.parametrize(("name", "fields", "message"), REFUSED, ids=[r[0] for r in REFUSED])
async def test_what_the_vendor_refuses(name: str, fields: dict[str, Any], message: str) -> None:
    assert name
    async with sim() as provider:
        reply = await ANTHROPIC.ask(provider, **fields)
        assert (reply.status, json.loads(reply.body)["error"]["type"]) == (
            400,
            "invalid_request_error",
        )
        assert reply.message.startswith(message)


def said(role: str, *blocks: object) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


WORD = {"type": "text", "text": "Word."}
WRONG: list[tuple[str, list[dict[str, Any]], str]] = [
    ("first", [said("assistant", WORD)], 'messages: first message must use the "user" role'),
    ("tool role", [{"role": "tool", "content": "x"}], "messages.0.role: Input should be 'user'"),
    (
        "system role",
        [USER, {"role": "system", "content": "x"}],
        "messages.1: role 'system' is not supported on this model",
    ),
    ("name", [USER | {"name": "Ada"}], "messages.0.name: Extra inputs are not permitted"),
    ("nothing", [said("user")], "messages.0: all messages must have non-empty content"),
    ("empty", [said("user", {"type": "text", "text": ""})], "messages: text content blocks must"),
    ("blank", [said("user", {"type": "text", "text": " "})], "messages: text content blocks must"),
    ("blank text", [{"role": "user", "content": " "}], "messages: text content blocks must"),
    (
        "openai's picture",
        [said("user", {"type": "image_url", "image_url": {}})],
        "messages.0.content.0: Input tag 'image_url' found using 'type' does not match any",
    ),
    (
        "picture",
        [said("user", {"type": "image", "source": {"type": "base64", "media_type": "a/b"}})],
        "messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg'",
    ),
    (
        "field",
        [said("user", WORD | {"annotations": []})],
        "messages.0.content.0.text.annotations: Extra inputs are not permitted",
    ),
    ("side", [said("user", USE)], "messages.0: `tool_use` blocks can only be in `assistant`"),
    ("other side", [USER, said("assistant", RESULT)], "messages.1: `tool_result` blocks can only"),
    (
        "id",
        [USER, said("assistant", USE | {"id": "a.b"})],
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        "input",
        [USER, said("assistant", USE | {"input": "{}"})],
        "messages.1.content.0.tool_use.input: Input should be an object",
    ),
    (
        "no call",
        [said("user", RESULT)],
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: call_1.",
    ),
    (
        "no result",
        [USER, said("assistant", USE), USER],
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after",
    ),
    (
        "words before the result",
        [USER, said("assistant", USE), said("user", WORD, RESULT)],
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after",
    ),
    (
        "two results",
        [USER, said("assistant", USE), said("user", RESULT, RESULT)],
        "messages.2.content.1: each tool_use must have a single result.",
    ),
    (
        "one id twice",
        [USER, said("assistant", USE, USE), said("user", RESULT)],
        "messages: `tool_use` ids must be unique",
    ),
    (
        "empty failure",
        [USER, said("assistant", USE), said("user", RESULT | {"content": [], "is_error": True})],
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        "forged thought",
        [USER, said("assistant", {"type": "thinking", "thinking": "A.", "signature": "x"}, WORD)],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "unsigned thought",
        [USER, said("assistant", {"type": "thinking", "thinking": "A."}, WORD)],
        "messages.1.content.0.thinking.signature: Field required",
    ),
    (
        "white space",
        [USER, said("assistant", {"type": "text", "text": "Dr. "})],
        "messages: final assistant content cannot end with trailing whitespace",
    ),
]


@pytest.mark.parametrize(("name", "messages", "message"), WRONG, ids=[w[0] for w in WRONG])
async def test_what_the_vendor_refuses_of_a_conversation(
    name: str, messages: list[dict[str, Any]], message: str
) -> None:
    assert name
    async with sim() as provider:
        reply = await ANTHROPIC.ask(provider, messages=messages)
        assert reply.status == 400
        assert reply.message.startswith(message)


@pytest.mark.parametrize("going_on", [[HALF], [said("assistant", USE), said("user", RESULT)]])
async def test_with_a_budget_an_answer_that_goes_on_began_with_a_thought(
    going_on: list[dict[str, Any]],
) -> None:
    async with sim() as provider:
        reply = await asked(provider, *going_on, thinking=THINKING)
        assert reply.message.startswith("messages.1.content.0.type: Expected `thinking` or `redact")
        assert (await asked(provider, HALF, USER, thinking=THINKING)).status == 200


async def test_structured_output_takes_no_prefix() -> None:
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    async with sim() as provider:
        reply = await asked(provider, HALF, output_config=form)
        assert reply.message.startswith("output_config.format: ")


async def test_a_thought_is_taken_back_as_it_was_given_and_not_otherwise() -> None:
    async with sim() as provider, sim() as other:
        first = await ANTHROPIC.ask(provider, stream=False, thinking=THINKING)
        content = json.loads(first.body)["content"][:2]
        turn = {"role": "assistant", "content": content}
        assert (await asked(other, turn, USER, thinking=THINKING)).status == 200
        changed = copy.deepcopy(turn)
        changed["content"][0]["thinking"] += " Hm."
        assert (await asked(other, changed, USER, thinking=THINKING)).status == 400


async def test_a_system_turn_where_a_model_takes_it() -> None:
    rule = {"role": "system", "content": "Be brief."}
    async with sim() as provider:
        assert (await asked(provider, rule, model="claude-opus-4-8")).status == 200
        assert (await asked(provider, rule, model="claude-opus-4-7")).status == 400
        misplaced = await asked(provider, HALF, rule, model="claude-opus-4-8")
        assert misplaced.message.startswith("messages.2: a system message must come immediately")


async def test_a_header_is_required_and_another_opens_more() -> None:
    async with sim() as provider:
        bare = ANTHROPIC.request()
        bare["_headers"] = {}
        async with connect(provider) as caller:
            reply = await caller.ask(**bare)
        assert (reply.status, reply.message) == (400, "anthropic-version: header is required")
        beta = {"anthropic-beta": "context-management-2025-06-27"}
        opened = await ANTHROPIC.ask(provider, _headers=beta, context_management={})
        assert opened.status == 200


async def test_counting_takes_fewer_fields() -> None:
    async with sim() as provider, client(provider) as its:
        with pytest.raises(anthropic.BadRequestError, match="max_tokens: Extra inputs are not"):
            await its.messages.count_tokens(
                model="sim", messages=ASKED["messages"], extra_body={"max_tokens": 5}
            )
        with pytest.raises(anthropic.RateLimitError):
            await its.messages.count_tokens(model="sim!rate_limit", messages=ASKED["messages"])
        assert [record.path for record in provider.requests] == ["/v1/messages/count_tokens"] * 2
