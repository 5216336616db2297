"""`router demo`: a person watches an answer survive its provider, over real sockets.

the answers    story.py   what both providers say, where the first is cut, how the second differs
the cast       stage.py   two simulated providers and a whole router in this process
the audience   play.py    one answer as its client and the router's observers see it; client.py
the picture    layout.py  characters to rows, purely; screen.py puts rows on a terminal or in a log
the judgement  verdict.py what must hold of what was heard
the evening    show.py    acts in order; command.py the options
"""

from router.demo.command import add_arguments, run

__all__ = ["add_arguments", "run"]
