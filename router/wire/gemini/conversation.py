"""Writes a canonical conversation as the body of a `generateContent` request.

https://ai.google.dev/api/generate-content, https://ai.google.dev/api/caching#Content

What differs between models is not decided here (`router/providers/gemini_models.py`): the body says
all that the client said, in the format's words, and a model may take less of it. Two fields come in
a form that only that module makes whole: `thinkingConfig`, which says the client's effort or budget
or both, and `thoughtSignature`, which only some models want.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from router.core.conversation import (
    NOTHING_SAID,
    CallPart,
    Conversation,
    MediaPart,
    Part,
    ResultPart,
    TextPart,
    Tool,
    ToolChoice,
    Turn,
    Written,
)
from router.wire.checks import quote
from router.wire.gemini.settings import write_settings
from router.wire.jsontext import loads, mend_tree
from router.wire.losses import Losses

FOREIGN_SIGNATURE: Final = "skip_thought_signature_validator"
"""Stands where a call has no signature since another model made it. Gemini 3 answers 400 to a call
without any; of the two words that its documentation offers, this is the one that Vertex AI knows
too. https://ai.google.dev/gemini-api/docs/thought-signatures#faqs,
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thought-signatures"""

_TOOL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
"""https://ai.google.dev/api/caching#FunctionDeclaration"""

_TYPES: Final[Mapping[str, str]] = {
    "bmp": "image/bmp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "aac": "audio/aac",
    "aiff": "audio/aiff",
    "flac": "audio/flac",
    "mp3": "audio/mp3",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "pdf": "application/pdf",
    "json": "application/json",
    "css": "text/css",
    "csv": "text/csv",
    "html": "text/html",
    "md": "text/plain",
    "txt": "text/plain",
    "xml": "text/xml",
}
"""Media types by the end of an address: Gemini must be told, and does not look.
https://ai.google.dev/gemini-api/docs/file-input-methods"""

_Json: TypeAlias = dict[str, Any]


def write_conversation(conversation: Conversation) -> Written:
    """The body of a request, and what it could not say.

    Turns of one role become one; in a user's, the results of calls come first, since Gemini wants
    them right behind the calls. Empty texts are left out: it refuses them. Instructions in
    mid-conversation move to the others at the front.

    Args:
        conversation: what the client asks for.

    Returns:
        `contents`, `systemInstruction`, `tools`, `toolConfig` and `generationConfig`, those of them
        that there is something to say in.
    """
    losses = Losses()
    body: _Json = {"contents": _contents(conversation.turns, losses)}
    system = _system(conversation, losses)
    if system and not body["contents"]:
        message = "Gemini wants a user's turn, so the instructions stand in one."
        losses.add("messages", message, hint=True)
        body["contents"] = [{"role": "user", "parts": system}]
    elif system:
        body["systemInstruction"] = {"parts": system}
    _let_the_user_begin(body["contents"], losses)
    declared = _tools(conversation.tools, losses)
    if declared:
        body["tools"] = [{"functionDeclarations": declared}]
        config = _calling(conversation, {tool["name"] for tool in declared}, losses)
        if config:
            body["toolConfig"] = {"functionCallingConfig": config}
    settings = write_settings(conversation, losses)
    if settings:
        body["generationConfig"] = settings
    if conversation.user:
        losses.add("user", "Gemini takes no name of the end user.", hint=True)
    return Written(body=body, losses=losses.all())


# -- Contents --------------------------------------------------------------------------------------


def _system(conversation: Conversation, losses: Losses) -> list[_Json]:
    parts: list[Part] = list(conversation.system)
    for turn in conversation.turns:
        if turn.role == "system":
            message = "Instructions among the messages are moved to the front."
            losses.add(turn.where, message, hint=True)
            parts += turn.parts
    return [written for part in parts for written in _PARTS[type(part)](part, losses)]


def _contents(turns: Iterable[Turn], losses: Losses) -> list[_Json]:
    contents: list[_Json] = []
    for turn in turns:
        if turn.name:
            message = "Gemini cannot be told who of several speaks."
            losses.add(f"{turn.where}.name", message, hint=True)
        if turn.role == "system":
            continue
        parts = [written for part in turn.parts for written in _PARTS[type(part)](part, losses)]
        role = "model" if turn.role == "assistant" else "user"
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    for content in contents:
        parts = content["parts"]
        if content["role"] == "user":
            parts.sort(key=lambda part: "functionResponse" not in part)
        else:
            _sign(parts)
    return contents


def _let_the_user_begin(contents: list[_Json], losses: Losses) -> None:
    """Gemini refuses a history that begins with a call of the model (one that was cut, say):
    https://github.com/google-gemini/gemini-cli/issues/11814."""
    if contents and contents[0]["role"] == "user":
        return
    message = f"Gemini wants the user to speak first; {NOTHING_SAID!r} stands there."
    losses.add("messages", message, hint=True)
    contents.insert(0, {"role": "user", "parts": [{"text": NOTHING_SAID}]})


def _sign(parts: list[_Json]) -> None:
    """Calls at once share one signature, on the first of them."""
    call = next((part for part in parts if "functionCall" in part), None)
    if call is not None:
        call["thoughtSignature"] = FOREIGN_SIGNATURE


def _text(part: TextPart, _losses: Losses) -> Iterable[_Json]:
    if part.text:
        yield {"text": part.text}


def _media(part: MediaPart, losses: Losses) -> Iterable[_Json]:
    if part.detail not in ("", "auto"):
        message = "Gemini cannot be told how closely to look at one picture."
        losses.add(part.where, message, hint=True)
    if part.name:
        losses.add(part.where, "Gemini takes no name of a file.", hint=True)
    if part.data:
        yield {"inlineData": {"mimeType": part.media_type, "data": part.data}}
        return
    kind = part.media_type or _TYPES.get(_ending(part.url), "")
    if not part.url.startswith(("https://", "gs://")):
        message = "Gemini fetches only what has an address under https or gs."
    elif not kind:
        message = "Gemini must be told the media type, and this address does not show it."
    else:
        yield {"fileData": {"mimeType": kind, "fileUri": part.url}}
        return
    losses.add(part.where, message)


def _ending(url: str) -> str:
    try:
        path = urlsplit(url).path
    except ValueError:
        return ""  # no address at all, so it shows no type
    return path.rpartition(".")[2].lower()


def _call(part: CallPart, _losses: Losses) -> Iterable[_Json]:
    yield {"functionCall": {"id": part.id, "name": part.name, "args": _arguments(part)}}


def _arguments(part: CallPart) -> _Json:
    """As an object; free text stands in one of its own."""
    if not part.custom:
        try:
            value, odd = loads(part.arguments.encode("utf-8", "replace"))
        except ValueError:
            value, odd = None, False
        if isinstance(value, dict):
            return mend_tree(value) if odd else value
    return {"input": part.arguments}


def _result(part: ResultPart, losses: Losses) -> Iterable[_Json]:
    """`output` and `error` are the names that Gemini knows; pictures follow as parts of the turn,
    which every model takes. https://ai.google.dev/api/caching#FunctionResponse"""
    texts = [one.text for one in part.parts if isinstance(one, TextPart)]
    said: str | list[str] = texts if len(texts) > 1 else "".join(texts)
    response = {"error" if part.error else "output": said}
    yield {"functionResponse": {"id": part.call_id, "name": part.name, "response": response}}
    for one in part.parts:
        if isinstance(one, MediaPart):
            yield from _media(one, losses)


_PARTS: Final[Mapping[type[Part], Callable[[Any, Losses], Iterable[_Json]]]] = {
    TextPart: _text,
    MediaPart: _media,
    CallPart: _call,
    ResultPart: _result,
}


# -- Tools -----------------------------------------------------------------------------------------


def _tools(tools: Iterable[Tool], losses: Losses) -> list[_Json]:
    declared: list[_Json] = []
    for tool in tools:
        if tool.custom:
            losses.add(tool.where, "Gemini has no tools that take free text.")
        elif not _TOOL_NAME.fullmatch(tool.name):
            losses.add(tool.where, f"Gemini takes no tool of the name {quote(tool.name)}.")
        else:
            declared.append(_declaration(tool))
    return declared


def _declaration(tool: Tool) -> _Json:
    """The schema as it came: `parametersJsonSchema` takes what `parameters`, which is a subset of
    OpenAPI's, refuses. https://ai.google.dev/api/caching#FunctionDeclaration"""
    declaration: _Json = {"name": tool.name}
    if tool.description:
        declaration["description"] = tool.description
    if tool.parameters:
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


_MODES: Final[Mapping[str, str]] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _calling(conversation: Conversation, names: set[str], losses: Losses) -> _Json:
    """https://ai.google.dev/api/caching#FunctionCallingConfig"""
    if conversation.parallel_calls is False:
        losses.add("parallel_tool_calls", "Gemini cannot be told to call one tool at a time.")
    choice = conversation.tool_choice or ToolChoice(mode="auto")
    if choice.mode == "named":
        named = choice.name in names  # where not, that it is lost was said of the tool
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]} if named else {}
    if choice.mode == "auto" and any(tool.strict for tool in conversation.tools):
        return {"mode": "VALIDATED"}  # AUTO that is held to the schemas
    return {"mode": _MODES[choice.mode]} if conversation.tool_choice else {}
