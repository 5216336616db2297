"""What a provider's failure means: one table, first match wins.

A row names what it looks at (family, HTTP status, machine-readable words, wording) and what it
concludes (kind, verdict). The same table reads responses that were not 2xx and error objects inside
a 200. What is done about a fault is decided elsewhere (`core/failover.py`).

Two conclusions need a fact that is not here. `PREFIX_REFUSED` means something only if a prefix was
sent; and an unknown 400 that answers a continuation may be a refused prefix in words of its own.
Both are the engine's to know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from router.core.faults import Fault, FaultKind, Verdict
from router.providers import waits
from router.providers.reason import Reason, read_body, read_object
from router.providers.redact import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row. Every condition that is given must hold.

    Args:
        verdict: the conclusion.
        kind: the kind of fault; `STATUS` becomes `STREAM_ERROR` for an error inside a stream.
        code: the canonical code where the provider gave none.
        families: provider families it applies to; empty for all.
        status: HTTP statuses, of the response or hidden in the error; empty for all. An error
            without any status passes only where `bare` says so.
        bare: holds also for an error that carries no status at all.
        words: codes or types, lower case, any of which matches; empty for no condition.
        wording: a pattern searched in the provider's sentences; None for no condition.
        unless_wait: does not hold where the provider named a wait.
    """

    verdict: Verdict
    kind: FaultKind = FaultKind.STATUS
    code: str = ""
    families: frozenset[str] = frozenset()
    status: frozenset[int] = frozenset()
    bare: bool = True
    words: frozenset[str] = frozenset()
    wording: re.Pattern[str] | None = None
    unless_wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the table looks at.

    Args:
        family: the provider's type.
        status: HTTP status, or None.
        words: codes and types, lower case.
        text: the provider's sentences.
        wait: a wait was named.
    """

    family: str
    status: int | None
    words: frozenset[str]
    text: str
    wait: bool


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _wording(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_4XX = frozenset(range(400, 500))
_5XX = frozenset(range(500, 600))
_JUDGED = frozenset({400, 413, 422, 500})
"""Statuses under which servers judge the request; 500 because llama.cpp and Ollama use it so."""

_PREFIX_FIELD = r"(?:continue_final_message|add_generation_prompt|\bprefix\b|\bpartial\b)"
_NOT_TAKEN = (
    r"(?:not permitted|not supported|unsupported|unrecognized|unknown|unexpected|not allowed)"
)

RULES: tuple[Rule, ...] = (
    # -- The prefix of a continuation is refused -----------------------------------------------
    Rule(
        verdict=Verdict.PREFIX_REFUSED,
        status=_JUDGED,
        wording=_wording(
            r"does not support assistant message prefill",  # Anthropic, Bedrock
            r"(?:conversation|messages?) must end with a user message",
            r"cannot end with trailing whitespace",  # Anthropic
            r"\bprefill\w*\b.{0,80}\b(?:not (?:supported|allowed|compatible)|incompatible)",
            # Anthropic, of a prefix beside thinking, and of thoughts in a prefix without it.
            r"final `?assistant`? message must start with a thinking block",
            r"`?assistant`? message in the final position cannot contain",
            r"requests ending with a model turn",  # Gemini
            r"multiturn requests? ends? with a user role",  # Gemini, older
            r"expected last role user or tool",  # Mistral
            r"last message .{0,60}must be (?:a |from the |from )?\W?user",  # DeepSeek and templates
            r"assistant response prefill",  # llama.cpp
            r"2 or more assistant messages at the end",  # llama.cpp
            r"cannot set (?:both )?\W?(?:add_generation_prompt|continue_final_message)",  # vLLM
            r"continue_final_message is set but",  # transformers' templates
            r"partial mode (?:is )?(?:not|un)",  # Qwen, Kimi
            rf"{_PREFIX_FIELD}.{{0,80}}{_NOT_TAKEN}",
            rf"{_NOT_TAKEN}.{{0,80}}{_PREFIX_FIELD}",
        ),
    ),
    # -- The request does not fit the model's context ------------------------------------------
    Rule(
        verdict=Verdict.REQUEST,
        kind=FaultKind.CONTEXT_LENGTH,
        code="context_length_exceeded",
        words=_words(
            "context_length_exceeded exceed_context_size_error context_window_exceeded "
            "model_context_window_exceeded context_length_error max_context_length_exceeded "
            "prompt_too_long input_too_long tokens_limit_reached contextwindowexceedederror"
        ),
    ),
    Rule(
        verdict=Verdict.REQUEST,
        kind=FaultKind.CONTEXT_LENGTH,
        code="context_length_exceeded",
        status=_JUDGED,
        wording=_wording(
            r"maximum context length",  # OpenAI, vLLM, DeepSeek, OpenRouter, Mistral, Fireworks
            r"(?:model's|available|configured|supported) context (?:length|size|window)",
            r"context (?:length|size|window|limit)[^.]{0,40} exceed",
            r"exceed\w*[^.]{0,60} context (?:length|size|window|limit)",
            r"longer than the (?:model's )?(?:maximum )?context",  # SGLang
            r"(?:prompt|input|request) is too long",  # Anthropic, Fireworks
            r"input token count .{0,40}exceeds the maximum",  # Gemini
            r"input token count .{0,40}only supports up to",  # Vertex AI
            r"range of input length should be",  # Qwen
            r"exceeded model token limit",  # Kimi
            r"reduce the length of the (?:messages|prompt|input)",  # Groq
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",  # TGI, Together
            r"context the overflows|context length of only",  # LM Studio
            r"maximum prompt length is",  # xAI
        ),
    ),
    # -- A policy refuses the content ----------------------------------------------------------
    Rule(
        verdict=Verdict.REQUEST,
        kind=FaultKind.CONTENT_POLICY,
        code="content_filter",
        words=_words(
            "content_filter content_policy_violation responsibleaipolicyviolation moderation "
            "moderation_blocked data_inspection_failed datainspectionfailed invalid_prompt "
            "content_policy safety prohibited_content sensitive_words_detected"
        ),
    ),
    Rule(
        verdict=Verdict.REQUEST,
        kind=FaultKind.CONTENT_POLICY,
        code="content_filter",
        status=frozenset({400, 403, 422, 451}),
        wording=_wording(
            r"content management policy",  # Azure
            r"content exists risk",  # DeepSeek
            r"(?:considered|flagged as|was rejected as) (?:high risk|a violation|unsafe)",  # Kimi
            r"inappropriate content",  # Qwen
            r"\bflagged\b.{0,40}\bmoderation|moderation.{0,80}\bflagged\b",  # OpenRouter
            r"content (?:policy|filter)\w* (?:violation|triggered)",
            r"violat\w+ (?:our|the) (?:usage|content|safety) polic",
            r"blocked by (?:our )?content filtering",  # Anthropic
        ),
    ),
    # -- The key, the money or the model name --------------------------------------------------
    Rule(
        verdict=Verdict.ACCOUNT,
        words=_words(
            "insufficient_quota exceeded_current_quota_error billing_hard_limit_reached "
            "billing_not_active account_deactivated insufficient_balance insufficient_credits "
            "arrearage allocationquota.freetieronly account_suspended billing_error "
            "enforced_spend_limit_reached "
            "invalid_api_key incorrect_api_key invalid_authentication_error authentication_error "
            "authenticationerror permission_error permission_denied permission_denied_error "
            "unauthenticated unauthorized api_key_invalid access_denied "
            "model_not_found model_not_found_error model_decommissioned model_deprecated "
            "invalid_model deploymentnotfound modelnotfound model_not_exist not_found_error "
            "notfounderror resource_not_found_error unsupported_country_region_territory"
        ),
        status=_4XX,
    ),
    # A country without a free tier, a project without billing, a user whom Google has shut out.
    Rule(
        verdict=Verdict.ACCOUNT,
        families=frozenset({"gemini"}),
        words=_words("failed_precondition pup_limited_disabled"),
    ),
    Rule(
        verdict=Verdict.ACCOUNT,
        status=_4XX,
        wording=_wording(
            r"insufficient (?:balance|credits?|funds|quota)",
            r"(?:credit balance|balance) is too low",  # Anthropic, at 400
            r"requires? more credits",  # OpenRouter
            r"prepayment credits are depleted|exceeded its (?:monthly )?spending cap",  # Gemini
            r"(?:billing|spend(?:ing)?|usage) (?:hard )?limit (?:has been |was )?reached",
            r"reached your (?:specified )?api usage limits",  # Anthropic, at 400 and 429
            r"(?:account|organization) (?:is |has been )?(?:suspended|deactivated|disabled)",
            r"account (?:is )?not active",
            r"(?:incorrect|invalid) api[ -]?key|api[ -]?key (?:is )?(?:not valid|invalid|expired)",
            r"model .{0,120}(?:does not exist|has been decommissioned|is deprecated and)",
            r"model .{0,120}not found|unknown model|invalid model\b",
            r"not a valid model id|no endpoints found",  # OpenRouter
            r"no models? (?:is |are )?loaded|failed to load model",  # LM Studio
        ),
    ),
    # Google's and DashScope's sentence for a spent quota and for a busy minute is the same.
    Rule(
        verdict=Verdict.ACCOUNT,
        status=frozenset({429}),
        wording=_wording(r"exceeded your current quota", r"billing details"),
        unless_wait=True,
    ),
    # -- Weather that comes dressed as a judgement ---------------------------------------------
    Rule(
        verdict=Verdict.TRANSIENT,
        families=frozenset({"groq"}),
        status=frozenset({400, 413}),
        # The model wrote a call or a JSON that Groq could not read; or a minute's tokens are spent.
        words=_words("tool_use_failed json_validate_failed rate_limit_exceeded"),
    ),
    Rule(
        verdict=Verdict.TRANSIENT,
        status=frozenset({400, 403, 404}),
        bare=False,
        words=_words("rate_limit_exceeded overloaded_error engine_overloaded_error throttling"),
    ),
    # -- Statuses ------------------------------------------------------------------------------
    Rule(
        verdict=Verdict.TRANSIENT,
        status=frozenset({408, 409, 425, 429, 499}) | _5XX,
        bare=False,
    ),
    # 405 and 410 as 404: a wrong base URL or a retired endpoint. 407: a proxy in between.
    Rule(
        verdict=Verdict.ACCOUNT,
        status=frozenset({401, 402, 403, 404, 405, 407, 410}),
        bare=False,
    ),
    Rule(verdict=Verdict.REQUEST, status=_4XX, bare=False),
    # -- Errors in a stream that carry words and no status -------------------------------------
    Rule(
        verdict=Verdict.TRANSIENT,
        words=_words(
            "server_error internal_server_error internalservererror internal_error api_error "
            "overloaded_error overloaded engine_overloaded_error unavailable unavailable_error "
            "service_unavailable serviceunavailable service_unavailable_error bad_gateway "
            "rate_limit_exceeded rate_limit_error rate_limit_reached_error ratelimiterror "
            "too_many_requests throttling throttling.ratequota resource_exhausted timeout "
            "timeout_error gateway_timeout deadline_exceeded generation incomplete_generation"
        ),
    ),
    Rule(
        verdict=Verdict.REQUEST,
        words=_words(
            "invalid_request_error badrequesterror bad_request invalid_argument "
            "invalid_parameter_error invalidparameter validation validation_error "
            "request_too_large unprocessable_entity"
        ),
    ),
)
"""The order is the meaning: a refused prefix before a context that is too long before a policy
before the account before statuses; a sentence that says more than its status is heard first."""


def _holds(rule: Rule, seen: Evidence) -> bool:
    if rule.status and (not rule.bare if seen.status is None else seen.status not in rule.status):
        return False
    if rule.families and seen.family not in rule.families:
        return False
    if rule.words and rule.words.isdisjoint(seen.words):
        return False
    if rule.unless_wait and seen.wait:
        return False
    return rule.wording is None or rule.wording.search(seen.text) is not None


MAX_JUDGED_CHARS = 4_096
"""Bound on the text that wordings are searched in: a sentence that decides stands early."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The table, bound to one target.

    Args:
        family: the provider's type.
        redact: removes this target's secrets from what is quoted.
    """

    family: str = "openai-compatible"
    redact: Redactor = field(default_factory=Redactor)

    def response(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a response with a status other than 2xx means. Never raises.

        Args:
            status: HTTP status.
            headers: response headers, names in lower case.
            body: the first bytes of the body.
        """
        if 300 <= status < 400:
            return self._redirect(status, headers)
        reason = read_body(body)
        return self._judge(reason, status, reason.headers | dict(headers), FaultKind.STATUS)

    def error_object(self, value: object) -> Fault:
        """What an error inside a 200 means. Never raises.

        Args:
            value: the error object, or the event that holds it, parsed.

        Returns:
            A fault of kind `STREAM_ERROR`, or `CONTEXT_LENGTH` or `CONTENT_POLICY` where it is one;
            the verdict is read from the code, type, status or wording inside, and is `TRANSIENT`
            where they say nothing.
        """
        reason = read_object(value)
        return self._judge(reason, reason.status, reason.headers, FaultKind.STREAM_ERROR)

    def _judge(
        self, reason: Reason, status: int | None, headers: Mapping[str, str], otherwise: FaultKind
    ) -> Fault:
        text = reason.message
        wait = waits.retry_after_s(headers, words=text[:MAX_JUDGED_CHARS])
        if wait is None:
            wait = reason.retry_after_s
        seen = Evidence(
            family=self.family,
            status=status,
            words=frozenset(word.lower() for word in reason.words),
            text=text[:MAX_JUDGED_CHARS],
            wait=wait is not None,
        )
        rule = next((rule for rule in RULES if _holds(rule, seen)), _WEATHER)
        return Fault(
            kind=otherwise if rule.kind is FaultKind.STATUS else rule.kind,
            verdict=rule.verdict,
            status=status,
            code=self.redact.word(reason.code) or rule.code,
            type=self.redact.word(reason.type),
            param=self.redact.word(reason.param),
            message=self.redact(text) or _unsaid(status),
            retry_after_s=wait,
        )

    def _redirect(self, status: int, headers: Mapping[str, str]) -> Fault:
        """A redirect is not followed: a POST with a credential goes only where it was sent."""
        where = self.redact(headers.get("location", "")) or "nowhere"
        return Fault(
            kind=FaultKind.STATUS,
            verdict=Verdict.ACCOUNT,
            status=status,
            code="redirected",
            message=f"Redirected to {where}; the configured base_url is probably wrong.",
        )


_WEATHER = Rule(verdict=Verdict.TRANSIENT)
"""Nothing is known of it, so nothing is held against the request or the account."""


def _unsaid(status: int | None) -> str:
    if status is None:
        return "The provider reported an error in the stream and gave no reason."
    return f"The provider answered HTTP {status} and gave no reason."
