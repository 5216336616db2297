"""The configuration: YAML in, frozen objects out; of a bad file every problem with its line."""

from router.config.load import load_config, parse_config
from router.config.publish import json_schema
from router.config.rules import Surroundings, is_loopback
from router.config.schema import (
    Config,
    Continuation,
    ContinuationRule,
    Health,
    Provider,
    ProviderType,
    Record,
    Retry,
    Route,
    Server,
    Target,
    TargetTimeouts,
    Timeouts,
)

__all__ = [
    "Config",
    "Continuation",
    "ContinuationRule",
    "Health",
    "Provider",
    "ProviderType",
    "Record",
    "Retry",
    "Route",
    "Server",
    "Surroundings",
    "Target",
    "TargetTimeouts",
    "Timeouts",
    "is_loopback",
    "json_schema",
    "load_config",
    "parse_config",
]
