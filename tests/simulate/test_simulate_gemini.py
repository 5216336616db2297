"""Gemini's format: by its bytes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from formats_kit import GEMINI, candidates, chunks, parts
from simulate_kit import Reply, connect

from router.core.continuation import Style
from router.core.events import ToolCall
from router.simulate import REFUSALS, Conduct, Faults, Script, SimulatedProvider, tokenize

TEXT = "Dr. Vane left at 6 p.m. “Why?” asked nobody. Zwölf Äpfel、三冊。 The end."
THOUGHT = "Let me see. Yes."
QUESTION = "Tell me everything."
CALLS = (
    ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 500, "to": "Vane"}'),
    ToolCall(index=1, id="call_2", name="look", arguments="{}"),
)
SCRIPT = Script(text=TEXT, reasoning=THOUGHT, tool_calls=CALLS)
PLAIN = Script(text=TEXT)
SHOWN = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}


def sim(faults: Faults | None = None, **settings: Any) -> SimulatedProvider:  # noqa: ANN401 - any of the provider's settings
    return SimulatedProvider(script=settings.pop("script", SCRIPT), faults=faults, **settings)


def said(reply: Reply) -> str:
    return "".join(GEMINI.pieces(reply))


def user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "parts": list(blocks) or [{"text": QUESTION}]}


def model(*blocks: object) -> dict[str, Any]:
    return {"role": "model", "parts": list(blocks)}


async def test_the_chunks_of_a_stream() -> None:
    async with sim() as provider:
        reply = await GEMINI.ask(provider, **SHOWN, tools=[{"functionDeclarations": [PAY]}])
        thoughts = [part["text"] for part in parts(reply) if part.get("thought")]
        assert thoughts == tokenize(THOUGHT)
        assert GEMINI.pieces(reply) == tokenize(TEXT)
        pay, look = [part for part in parts(reply) if "functionCall" in part]
        assert pay["functionCall"] == {
            "id": "call_1",
            "name": "pay",
            "args": {"amount": 500, "to": "Vane"},
        }
        assert look == {"functionCall": {"id": "call_2", "name": "look", "args": {}}}
        assert pay["thoughtSignature"]
        assert GEMINI.finish(reply) == "STOP"
        assert {chunk["modelVersion"] for chunk in chunks(reply)} == {"sim"}
        usage = chunks(reply)[-1]["usageMetadata"]
        record = await provider.wait_ended()
        assert usage["promptTokenCount"] == 4 + len(tokenize(QUESTION))
        assert usage["thoughtsTokenCount"] == len(thoughts)
        assert usage["candidatesTokenCount"] + len(thoughts) == record.tokens_sent
        assert usage["totalTokenCount"] == usage["promptTokenCount"] + record.tokens_sent
        assert (record.tools, record.thinking, record.messages) == (("pay",), True, 1)
        assert (record.query, record.model) == ("alt=sse", "sim")


async def test_a_whole_response_is_the_same() -> None:
    async with sim() as provider:
        reply = await GEMINI.ask(provider, stream=False, **SHOWN)
        whole = json.loads(reply.body)
        thought, text, pay, look = whole["candidates"][0]["content"]["parts"]
        assert thought == {"text": THOUGHT, "thought": True}
        assert text == {"text": TEXT}
        assert [part["functionCall"]["name"] for part in (pay, look)] == ["pay", "look"]
        assert whole["candidates"][0]["finishReason"] == "STOP"
        assert whole["usageMetadata"]["thoughtsTokenCount"] == len(tokenize(THOUGHT))


async def test_thoughts_that_are_not_wanted_cost_all_the_same() -> None:
    async with sim() as provider:
        reply = await GEMINI.ask(provider)
        assert not [part for part in parts(reply) if part.get("thought")]
        assert chunks(reply)[-1]["usageMetadata"]["thoughtsTokenCount"] == len(tokenize(THOUGHT))
        off = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
        quiet = await GEMINI.ask(provider, **off)
        assert "thoughtsTokenCount" not in chunks(quiet)[-1]["usageMetadata"]
        assert [record.thinking for record in provider.requests] == [None, False]


async def test_older_models_give_calls_no_ids() -> None:
    async with sim() as provider:
        for name, has_id in ("gemini-2.5-flash", False), ("gemini-3-pro-preview", True):
            reply = await GEMINI.ask(provider, model=name)
            calls = [part["functionCall"] for part in parts(reply) if "functionCall" in part]
            assert [("id" in call) for call in calls] == [has_id, has_id]
            assert (provider.requests[-1].model, parts(reply)[-1]["text"]) == (name, "")


@pytest.mark.parametrize(
    ("config", "text", "reason"),
    [
        ({"maxOutputTokens": 5}, "".join(tokenize(TEXT)[:5]), "MAX_TOKENS"),
        ({"stopSequences": ["nobody", "Why"]}, "Dr. Vane left at 6 p.m. “", "STOP"),
    ],
)
async def test_why_an_answer_ends(config: dict[str, Any], text: str, reason: str) -> None:
    async with sim(script=PLAIN) as provider:
        reply = await GEMINI.ask(provider, generationConfig=config)
        assert (said(reply), GEMINI.finish(reply)) == (text, reason)


async def test_two_candidates_interleave() -> None:
    async with sim(script=PLAIN) as provider:
        reply = await GEMINI.ask(provider, generation_config={"candidate_count": 2})
        for index in (0, 1):
            mine = [c for c in candidates(reply) if c["index"] == index]
            texts = [part["text"] for c in mine for part in c["content"]["parts"]]
            assert "".join(texts) == TEXT
            assert [c["finishReason"] for c in mine if "finishReason" in c] == ["STOP"]


async def test_an_empty_candidate_and_a_blocked_prompt() -> None:
    async with sim(["empty", "filtered"] * 2) as provider:
        for stream in (True, False):
            empty = await GEMINI.ask(provider, stream=stream)
            first = chunks(empty)[0] if stream else json.loads(empty.body)
            assert first["candidates"] == [
                {"content": {"role": "model"}, "index": 0, "finishReason": "STOP"}
            ]
            blocked = await GEMINI.ask(provider, stream=stream)
            only = chunks(blocked)[0] if stream else json.loads(blocked.body)
            assert only["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"}
            assert "candidates" not in only
            assert blocked.status == 200


async def test_a_stream_that_is_no_event_stream_is_one_array() -> None:
    path = "/v1beta/models/sim:streamGenerateContent"
    async with sim(script=PLAIN) as provider, connect(provider) as caller:
        reply = await caller.ask(**(GEMINI.request() | {"_path": path}))
        assert reply.headers["content-type"].startswith("application/json")
        found = [chunk["candidates"][0] for chunk in json.loads(reply.body)]
        assert [c["content"]["parts"][0]["text"] for c in found] == [*tokenize(TEXT), ""]
        headers = {"x-simulate": "malformed@2"}
        broken = await caller.ask(**(GEMINI.request() | {"_path": path, "_headers": headers}))
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|Invalid"):
            json.loads(broken.body)
        headers = {"x-simulate": "done_only"}
        bare = await caller.ask(**(GEMINI.request() | {"_path": path, "_headers": headers}))
        assert json.loads(bare.body) == []


@pytest.mark.parametrize(
    "name", ["sim!cut@3", "sim%21cut%403", "tuned%2Fsim!cut@3", "sim!cut@3,header=a:b"]
)
async def test_the_models_name_is_decoded(name: str) -> None:
    async with sim(script=PLAIN) as provider:
        reply = await GEMINI.ask(provider, model=name)
        assert (GEMINI.pieces(reply), reply.how) == (tokenize(TEXT)[:3], "fin")
        assert provider.requests[0].model.endswith("sim")


async def test_what_stands_before_the_models_name_does_not_matter() -> None:
    path = "/v1/projects/p/locations/l/publishers/google/models/sim:generateContent"
    async with sim(script=PLAIN) as provider, connect(provider) as caller:
        reply = await caller.ask(**(GEMINI.request() | {"_path": path}))
        assert GEMINI.text(json.loads(reply.body)) == TEXT
        assert provider.requests[0].model == "sim"


async def test_a_key_may_come_in_the_query() -> None:
    path = "/v1beta/models/sim:generateContent?key="
    async with sim(api_key="k") as provider, connect(provider) as caller:
        assert (await caller.ask(**(GEMINI.request() | {"_path": path + "k"}))).status == 200
        wrong = await caller.ask(**(GEMINI.request() | {"_path": path + "q"}))
        error = json.loads(wrong.body)["error"]
        assert (wrong.status, error["status"]) == (400, "INVALID_ARGUMENT")
        assert error["details"][0]["reason"] == "API_KEY_INVALID"


@pytest.mark.parametrize(
    ("fault", "status", "word", "message"),
    [
        ("status=503", 503, "UNAVAILABLE", "The model is overloaded."),
        ("status=500,message=Oops", 500, "INTERNAL", "Oops"),
        ("status=504", 504, "DEADLINE_EXCEEDED", "The request timed out."),
        ("status=418", 418, "UNKNOWN", "Unknown error."),
        ("rate_limit", 429, "RESOURCE_EXHAUSTED", "You exceeded your current quota"),
        ("context_length", 400, "INVALID_ARGUMENT", "The input token count (1048577) exceeds"),
        ("no_model", 404, "NOT_FOUND", "models/gemini-0 is not found for API version v1beta"),
        ("no_model,status=410", 410, "UNKNOWN", "models/gemini-0 is not found"),
    ],
)
async def test_errors_are_the_vendors(fault: str, status: int, word: str, message: str) -> None:
    async with sim(f"{fault},retry_after=2") as provider:
        reply = await GEMINI.ask(provider)
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["status"]) == (status, status, word)
        assert error["message"].startswith(message)
        assert error["details"][0]["retryDelay"] == "2s"
        assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("", b'\n\ndata: {"error":{"code":503,"message":"Busy","status":"UNAVAILABLE"}}'),
        ("choices", b'"candidates":[],"error":{"code":503,"message":"Busy"'),
        ("event", b'event: error\ndata: {"error":{"code":503,'),
        ("string", b'data: {"error":"Busy"}'),
        ("flat", b'data: {"error":"Busy","error_type":"UNAVAILABLE"}'),
        ("field", b'\n\nerror: {"code":503,"message":"Busy"'),
    ],
)
async def test_an_error_in_the_stream(form: str, shown: bytes) -> None:
    async with sim(f"error@3,status=503,message=Busy,form={form}", script=PLAIN) as provider:
        reply = await GEMINI.ask(provider)
        assert shown in reply.body
        assert (GEMINI.pieces(reply), reply.status) == (tokenize(TEXT)[:3], 200)


async def test_a_finish_that_is_a_failure() -> None:
    async with sim("finish_error@2,reason=MALFORMED_FUNCTION_CALL") as provider:
        assert GEMINI.finish(await GEMINI.ask(provider)) == "MALFORMED_FUNCTION_CALL"


async def test_tokens_are_counted() -> None:
    contents = [user({"text": QUESTION})]
    inner = {"model": "models/sim", "contents": contents}
    async with sim() as provider, connect(provider) as caller:
        for body in ({"contents": contents}, {"generateContentRequest": inner}):
            asked = GEMINI.request() | {"_path": "/v1beta/models/sim:countTokens", "_body": body}
            reply = await caller.ask(**asked)
            assert json.loads(reply.body) == {"totalTokens": 4 + len(tokenize(QUESTION))}


async def test_a_document_is_said_when_json_is_wanted() -> None:
    config = {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}
    async with sim(script=Script(text=TEXT, json_text='{"age": 36}')) as provider:
        assert said(await GEMINI.ask(provider, generationConfig=config)) == '{"age": 36}'


HALF = model({"text": "Dr. Vane left"})


@pytest.mark.parametrize(
    ("contents", "style"),
    [
        ([user(), HALF], Style.ASSISTANT_TAIL),
        ([user(), model({"text": "Hm.", "thought": True}, *HALF["parts"])], Style.ASSISTANT_TAIL),
        ([user(), HALF, user({"text": "Continue."})], Style.INSTRUCT),
    ],
)
async def test_a_prefix_is_continued_and_remembered(
    contents: list[dict[str, Any]], style: Style
) -> None:
    async with sim(script=PLAIN) as provider:
        reply = await GEMINI.ask(provider, model="gemini-3.5-flash", contents=contents)
        assert "Dr. Vane left" + said(reply) == TEXT
        record = await provider.wait_ended()
        assert (record.style, record.prefix, record.found) == (style, "Dr. Vane left", True)


@pytest.mark.parametrize(
    ("name", "conduct"),
    [
        ("gemini-3.6-flash", Conduct()),
        ("gemini-3.5-flash-lite", Conduct()),
        ("gemini-2.5-flash", Conduct(prefix="refuse")),
    ],
)
async def test_a_newer_model_takes_no_prefix(name: str, conduct: Conduct) -> None:
    async with sim(script=PLAIN, conduct=conduct) as provider:
        reply = await GEMINI.ask(provider, model=name, contents=[user(), HALF])
        assert (reply.status, reply.message) == (400, REFUSALS["gemini"])
        told = [user(), HALF, user({"text": "Go on."})]
        assert "Dr. Vane left" + said(await GEMINI.ask(provider, model=name, contents=told)) == TEXT


PAY = {"name": "pay", "parametersJsonSchema": {"type": "object"}}
CALL = {"functionCall": {"name": "pay", "args": {}}}
SIGNED = CALL | {"thoughtSignature": "skip_thought_signature_validator"}
RESULT = {"functionResponse": {"name": "pay", "response": {"output": "Paid."}}}


async def test_a_call_is_taken_back_with_its_signature_and_not_otherwise() -> None:
    newer = "gemini-3-pro-preview"
    async with sim() as provider, sim() as other:
        first = await GEMINI.ask(provider, stream=False, model=newer)
        answer = json.loads(first.body)["candidates"][0]["content"]
        results = user(RESULT, {"functionResponse": {"name": "look", "response": {}}})
        reply = await GEMINI.ask(other, model=newer, contents=[user(), answer, results])
        assert said(reply) == TEXT
        assert provider.requests[0].style is None
        forged = model(CALL | {"thoughtSignature": "Zm9yZ2Vk"})
        reply = await GEMINI.ask(provider, model=newer, contents=[user(), forged, user(RESULT)])
        assert reply.message == "Corrupted thought signature."
        bare = [user(), model(CALL), user(RESULT)]
        reply = await GEMINI.ask(provider, model=newer, contents=bare)
        assert reply.message.startswith("Function call is missing a thought_signature in function")
        assert "`default_api:pay` , position 2." in reply.message
        for name, contents in (
            ("gemini-2.5-flash", bare),
            (newer, [user(), model(SIGNED), user(RESULT)]),
            (newer, [*bare, model({"text": "Paid."}), user()]),
        ):
            assert (await GEMINI.ask(provider, model=name, contents=contents)).status == 200


def config(**fields: object) -> dict[str, Any]:
    return {"generationConfig": fields}


def function(**fields: object) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": "pay"} | fields]}]}


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}
JSON = {"responseMimeType": "application/json"}
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("nothing", "sim", {"contents": []}, "* GenerateContentRequest.contents: contents is not spec"),
    (
        "no parts",
        "sim",
        {"contents": [user(), {"role": "model", "parts": []}]},
        "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
    ),
    (
        "empty text",
        "sim",
        {"contents": [user({"text": ""})]},
        "* GenerateContentRequest.contents[0].parts[0].data: required oneof field 'data' must have",
    ),
    (
        "empty instruction",
        "sim",
        {"systemInstruction": {"parts": [{"text": ""}]}},
        "* GenerateContentRequest.system_instruction.parts[0].data: required oneof field 'data'",
    ),
    (
        "role",
        "sim",
        {"contents": [{"role": "assistant", "parts": [{"text": "A."}]}]},
        "Please use a valid role: user, model.",
    ),
    ("unknown", "sim", {"n": 1}, 'Invalid JSON payload received. Unknown name "n": Cannot find f'),
    (
        "unknown inside",
        "sim",
        config(max_tokens=1),
        "Invalid JSON payload received. Unknown name \"max_tokens\" at 'generation_config': Cannot",
    ),
    (
        "json schema",
        "sim",
        function(parameters=OBJECT | {"additionalProperties": False}),
        (
            'Invalid JSON payload received. Unknown name "additionalProperties" at '
            "'tools[0].function_declarations[0].parameters': Cannot find field."
        ),
    ),
    (
        "json schema inside",
        "sim",
        config(**JSON, responseSchema={"type": "object", "properties": {"n": {"const": 1}}}),
        (
            'Invalid JSON payload received. Unknown name "const" at '
            "'generation_config.response_schema.properties[0].value': Cannot find field."
        ),
    ),
    (
        "two types",
        "sim",
        function(parameters={"type": ["object", "null"]}),
        (
            'Invalid JSON payload received. Unknown name "type" at '
            "'tools[0].function_declarations[0].parameters': Proto field is not repeating, cannot"
        ),
    ),
    (
        "no properties",
        "sim",
        function(parameters={"type": "object"}),
        "* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties: should",
    ),
    (
        "no items",
        "sim",
        function(parameters={"type": "object", "properties": {"n": {"type": "array"}}}),
        (
            "* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties"
            '["n"].items: missing field.'
        ),
    ),
    (
        "name",
        "sim",
        {"tools": [{"functionDeclarations": [{"name": "7up"}]}]},
        "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name.",
    ),
    (
        "two of a name",
        "sim",
        {"tools": [{"functionDeclarations": [PAY, PAY]}]},
        "Duplicate function declaration found: pay",
    ),
    (
        "choice",
        "sim",
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        "Function calling config is set without function_declarations.",
    ),
    (
        "stops",
        "sim",
        config(stopSequences=list("abcdef")),
        "* GenerateContentRequest.generation_config.stop_sequences: the number of stop_sequences",
    ),
    ("hot", "sim", config(temperature=2.5), "* GenerateContentRequest.generation_config.temper"),
    (
        "penalty",
        "gemini-2.5-flash",
        config(presencePenalty=0.5),
        "Penalty is not enabled for this model",
    ),
    (
        "schema of no json",
        "sim",
        config(responseSchema=OBJECT),
        "* GenerateContentRequest.generation_config.response_schema: only supported with",
    ),
    (
        "two schemas",
        "sim",
        config(**JSON, responseSchema=OBJECT, responseJsonSchema=OBJECT),
        "* GenerateContentRequest.generation_config.response_json_schema: cannot be set along",
    ),
    (
        "json and tools",
        "gemini-2.5-flash",
        config(**JSON) | function(),
        "Function calling with a response mime type: 'application/json' is unsupported",
    ),
    (
        "level",
        "gemini-2.5-pro",
        config(thinkingConfig={"thinkingLevel": "LOW"}),
        "Thinking level is not supported for this model.",
    ),
    (
        "level and budget",
        "gemini-3-pro",
        config(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 1}),
        "You can only set only one of thinking budget and thinking level.",
    ),
    (
        "no struct",
        "sim",
        {"contents": [user({"functionResponse": {"name": "pay", "response": "Paid."}})]},
        (
            "Invalid value at 'contents[0].parts[0].function_response.response' "
            '(type.googleapis.com/google.protobuf.Struct), "Paid."'
        ),
    ),
    (
        "no base64",
        "sim",
        {"contents": [user({"inlineData": {"mimeType": "image/png", "data": "=!"}})]},
        "Invalid value at 'contents[0].parts[0].inline_data.data' (TYPE_BYTES), Base64 decoding",
    ),
    (
        "no object",
        "sim",
        {"contents": ["Hi"]},
        "Invalid value at 'contents[0]' (type.googleapis.com/google.ai.generativelanguage.v1beta.",
    ),
    (
        "no call",
        "sim",
        {"contents": [user(), user(RESULT)]},
        "Please ensure that function response turn comes immediately after a function call turn.",
    ),
    (
        "no result",
        "sim",
        {"contents": [user(), model(CALL), user()]},
        "Please ensure that the number of function response parts is equal to the number of",
    ),
    (
        "one result of two",
        "sim",
        {"contents": [user(), model(CALL, CALL), user(RESULT)]},
        "Please ensure that the number of function response parts is equal to the number of",
    ),
    (
        "call after words",
        "sim",
        {"contents": [user(), model({"text": "So."}), model(CALL), user(RESULT)]},
        "Please ensure that function call turn comes immediately after a user turn or after a",
    ),
]


@pytest.mark.parametrize(
    ("name", "fields", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
async def test_what_the_vendor_refuses(name: str, fields: dict[str, Any], message: str) -> None:
    async with sim() as provider:
        reply = await GEMINI.ask(provider, model=name, **fields)
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["status"]) == (400, "INVALID_ARGUMENT")
        assert error["message"].startswith(message)
        assert ("details" in error) is message.startswith("Invalid ")


async def test_names_may_be_spelt_either_way() -> None:
    fields: dict[str, Any] = {
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "tool_config": {"function_calling_config": {"mode": "AUTO"}},
        "tools": [{"function_declarations": [{"name": "pay", "parameters": OBJECT}]}],
        "generation_config": {"max_output_tokens": 5, "seed": None},
    }
    async with sim(script=PLAIN) as provider:
        assert GEMINI.finish(await GEMINI.ask(provider, **fields)) == "MAX_TOKENS"
