"""Serves one small model by llama.cpp's own HTTP server, until killed or until its input ends.

Run by a Python that has xllamacpp (`tools/real-model` makes one), as a process of its own, so that
a test can kill or stop it. Its output is one line, the root of its address, once it listens.

The settings are those under which an answer does not depend on where it was cut:

- one token is evaluated at a time (`n_ubatch`), however many are known: a prefix that is read in
  batches is rounded otherwise than one that was generated, and a small model's near-ties tip over;
- one thread, so that sums are always added in the same order;
- no prompt cache: it would give back what was generated here, and hide such a difference.
"""

from __future__ import annotations

import argparse
import sys

import xllamacpp

CONTEXT_TOKENS = 1024
"""Room for the longest prompt, its prefix and the rest of its answer."""


def parameters(args: argparse.Namespace) -> xllamacpp.CommonParams:
    """What the server is told."""
    params = xllamacpp.CommonParams()
    params.offline = True
    params.model.path = args.model
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.n_ubatch = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.cache_prompt = False
    params.prefill_assistant = not args.no_prefill
    return params


def main() -> None:
    """Serve until the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--no-prefill",
        action="store_true",
        help="a trailing assistant message is a turn of its own",
    )
    args = parser.parse_args()
    server = xllamacpp.Server(parameters(args))
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
