"""`router drill`: a gateway owner's three questions, asked of one's own configuration.

What happens when a provider is killed before its first token, what when it is killed in the middle
of its answer, and what do the books say afterwards?

the asking    question.py what is asked of the providers, and what it will cost
the accident  scissors.py where a body is cut, purely; relay.py a local relay that cuts there
the stage     stage.py    the configured route in this process, two targets of it, one relayed
the drill     rounds.py   the uncut answer, the two accidents, for each pair of targets
the judgement findings.py the three answers; judge.py what the fallback did with the prefix
              books.py    what the books must say; advice.py the YAML that would mend it
the telling   show.py     for people and for programs; command.py the options
"""

from router.drill.command import add_arguments, run

__all__ = ["add_arguments", "run"]
