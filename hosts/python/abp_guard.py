"""What an order's policy lets an agent do in its working directory.

The patterns have the meaning the host gives them: `*` and `?` match `/` too, `**` matches whole
components, and a path pattern covers everything beneath what it matches. Deny wins over allow, and
a pattern that cannot be read is an error: a rule that is skipped protects nothing.
"""

import os
import re


class Refused(Exception):
    """The policy, or the boundary of the workspace, forbids it."""


class Guard:
    """Judges tools and paths. `root` is the directory the agent works in."""

    def __init__(self, root, policy):
        self.root = os.path.realpath(root)
        self._allowed = _patterns(policy, "allowed_tools")
        self._disallowed = _patterns(policy, "disallowed_tools")
        self._approval = _patterns(policy, "require_approval_for")
        self._deny_read = _path_patterns(policy, "deny_read")
        self._deny_write = _path_patterns(policy, "deny_write")

    def check_tool(self, name):
        """Refuses a tool that is denied, or that a person would have to approve.

        An agent that wants to wait for that person asks the host instead, with
        `ctx.request_permission`.
        """
        _refuse_match(self._disallowed, name, f"tool {name!r} is denied by")
        if self._allowed and not any(pattern.fullmatch(name) for _, pattern in self._allowed):
            raise Refused(f"tool {name!r} matches no pattern of allowed_tools")
        _refuse_match(self._approval, name, f"tool {name!r} needs approval by")

    def readable(self, path):
        """The path relative to the root, with every link followed, if it may be read."""
        return self._judge(path, self._deny_read)

    def writable(self, path):
        """The path relative to the root, with every link followed, if it may be written."""
        return self._judge(path, self._deny_write)

    def _judge(self, path, denied):
        relative = self._inside(path)
        _refuse_match(denied, relative, f"path {relative!r} is denied by")
        return relative

    def _inside(self, path):
        if not path or "\0" in path:
            raise Refused(f"path {path!r} is not a path")
        real = os.path.realpath(os.path.join(self.root, path))
        relative = os.path.relpath(real, self.root)
        if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
            raise Refused(f"path {path!r} is outside the workspace")
        return relative


def _refuse_match(patterns, name, what):
    for rule, pattern in patterns:
        if pattern.fullmatch(name):
            raise Refused(f"{what} {rule}")


def _patterns(policy, field):
    return [
        (f'{field}[{index}] "{glob}"', re.compile(glob_to_regex(glob), re.DOTALL))
        for index, glob in enumerate(policy.get(field, []))
    ]


def _path_patterns(policy, field):
    return [
        (f'{field}[{index}] "{glob}"', re.compile(_path_regex(glob), re.DOTALL))
        for index, glob in enumerate(policy.get(field, []))
    ]


def _path_regex(glob):
    """`./secrets/` is read as `secrets`, and covers what is beneath it."""
    relative = re.sub(r"^(?:\.?/)+", "", glob).rstrip("/")
    return f"{glob_to_regex(relative)}|{glob_to_regex(relative + '/**')}"


# Longest first; the ends matter, because `**` is special only as a whole component.
_TOKENS = re.compile(
    r"(?P<any>^\*\*\Z)|(?P<prefix>^(?:\*\*/)+)|(?P<middle>/\*\*(?:/\*\*)*/)"
    r"|(?P<suffix>(?:/\*\*)+\Z)|(?P<stars>\*+)|(?P<one>\?)|\[(?P<negated>[!^]?)(?P<set>\]?[^\]]*)\]"
    r"|(?P<open>\{)|(?P<close>\})|(?P<comma>,)|\\(?P<escaped>.)|(?P<plain>[^\[\\])",
    re.DOTALL,
)
_WILDCARDS = {
    "any": ".*",
    "prefix": "(?:.*/)?",
    "middle": "/(?:.*/)?",
    "suffix": "/.*",
    "stars": ".*",
    "one": ".",
}


def glob_to_regex(glob):
    """The glob as a regular expression for the whole of a name."""
    regex, depth, position = "", 0, 0
    while position < len(glob):
        token = _TOKENS.match(glob, position)
        if token is None:
            raise ValueError(f"pattern {glob!r} is malformed at {position}")
        position = token.end()
        kind = token.lastgroup
        if kind in _WILDCARDS:
            regex += _WILDCARDS[kind]
        elif kind == "set":
            regex += _character_class(token["negated"], token["set"])
        elif kind == "open":
            depth, regex = depth + 1, regex + "(?:"
        elif kind == "close" and depth:
            depth, regex = depth - 1, regex + ")"
        elif kind == "comma" and depth:
            regex += "|"
        else:
            regex += re.escape(token[kind])
    if depth or not glob:
        raise ValueError(f"pattern {glob!r} is malformed")
    return regex


def _character_class(negated, characters):
    escaped = re.sub(r"[\]\\^\[&~|]", r"\\\g<0>", characters)
    return f"[{'^' if negated else ''}{escaped}]"
