"""Every exception the router raises on purpose.

    RouterError
    ├── ConfigError          a configuration file that cannot be used: file, line, remedy
    │   └── ConfigErrors         all that is wrong with it, in the order of the lines
    ├── RequestError         a client's request that cannot be served: an OpenAI error body
    ├── MalformedStream      upstream bytes that are no stream: becomes the fault `malformed`
    ├── IllegalTransition    an event that the commit machine does not allow: a bug, never weather
    └── RecordError          the failover record cannot do what was asked
        ├── RecordUnavailable    Redis is away or too slow
        │   └── RecordNotYet         no such stream there, but Redis was away a moment ago
        ├── RecordNotFound       no such stream, or its retention is over
        ├── RecordNotKept        this router keeps no text of any stream
        ├── RecordConflict       the stored length or digest is not the one expected
        ├── RecordCorrupt        a value under our key that this version cannot read
        └── RecordFenced         another writer owns the record now: a newer epoch

Foreign exceptions are mapped at one seam each: the HTTP client's in `engine/attempt.py`, Redis's in
`store/link.py`, YAML's and pydantic's in `config/`.
"""

from __future__ import annotations

from collections.abc import Sequence


class RouterError(Exception):
    """Root of the tree."""


class ConfigError(RouterError):
    """A configuration file that cannot be used.

    Args:
        message: what is wrong, one sentence.
        file: path as the user gave it.
        line: 1-based line in that file, or None when no line is to blame.
        remedy: what would be right, one sentence.
    """

    def __init__(self, message: str, *, file: str, line: int | None, remedy: str) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.remedy = remedy
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message} {remedy}")

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        """Every single problem, so that a caller need not ask whether there was one or many."""
        return (self,)


class ConfigErrors(ConfigError):
    """All problems of one file, reported in one go. Its own fields are those of the first.

    Args:
        problems: at least one, in the order in which they are to be shown.
    """

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        first = problems[0]
        super().__init__(first.message, file=first.file, line=first.line, remedy=first.remedy)
        self.args = ("\n".join(str(problem) for problem in problems),)
        self._problems = tuple(problems)

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        """Every single problem."""
        return self._problems


class RequestError(RouterError):
    """A client's request that cannot be served.

    Args:
        message: a sentence a person can act on.
        status: HTTP status, 4xx or 5xx.
        type: OpenAI's error type, such as `invalid_request_error`.
        param: the request field at fault, in dotted form (`messages[0].role`), or None.
        code: a stable machine-readable word, or None.
        headers: further response headers, such as `Retry-After`.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "invalid_request_error",  # noqa: A002 - OpenAI's own word on the wire
        param: str | None = None,
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = headers


class MalformedStream(RouterError):
    """Upstream bytes that cannot be read as a stream, a completion or an error."""


class IllegalTransition(RouterError):
    """An event that the present state does not allow; nothing was changed."""


class RecordError(RouterError):
    """The failover record cannot do what was asked."""


class RecordUnavailable(RecordError):
    """The store does not answer, or not in time."""


class RecordNotYet(RecordUnavailable):
    """The store does not know the stream, and has been in trouble so lately that it may be told of
    it any moment."""


class RecordNotFound(RecordError):
    """No record of that stream: never opened, completed, or its retention is over."""


class RecordNotKept(RecordError):
    """This router keeps no text of any stream, so none can be resumed."""


class RecordConflict(RecordError):
    """The record is not in the state that the caller expected."""


class RecordCorrupt(RecordError):
    """A value under our key that this version cannot read."""


class RecordFenced(RecordError):
    """A newer epoch owns the record; this writer must stop."""
