"""Names and reasons as they may be shown: they are the users' own and may hold anything.

A job name can carry escape sequences that drive a terminal, line ends that add headers to a mail,
direction marks that turn a sentence round, and bytes that are no UTF-8 (lone surrogates).
"""

from __future__ import annotations

import unicodedata


def line(text: str, most: int = 200) -> str:
    """One line of at most `most` characters; white space is one space, what can't be shown `?`."""
    shown = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return shown if len(shown) <= most else shown[: most - 3].rstrip() + "..."


def escaped(text: str) -> str:
    """All of it in one line, and told apart: what can't be shown as in a program's text (`\\n`)."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def lines(text: str) -> str:
    """Lines ended by "\\n" as they are, but for what can't be shown."""
    whole = text.replace("\r\n", "\n").expandtabs(8)
    return "".join(c if c == "\n" or c.isprintable() else "?" for c in whole)


def width(text: str) -> int:
    """Columns that a terminal takes for it."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def wrap(text: str, columns: int) -> list[str]:
    """One line as several, broken at spaces, or inside of a word that is wider than all."""
    found = [""]
    for word in text.split():
        for piece in _pieces(word, columns):
            longer = f"{found[-1]} {piece}" if found[-1] else piece
            if width(longer) <= columns:
                found[-1] = longer
            else:
                found.append(piece)
    return found


def _pieces(word: str, columns: int) -> list[str]:
    found = [""]
    for character in word:
        if width(found[-1] + character) > columns:
            found.append("")
        found[-1] += character
    return found
