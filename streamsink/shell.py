"""How messages name the command that does what they advise. Imported by everybody who raises an error."""

import shlex


def in_a_shell(*words: str) -> str:
    """The same as a command line, in brackets, for a message. words: behind the name of the program."""
    return f"(in a shell: streamsink {shlex.join(words)})"


def restore(path: str) -> str:
    """How a file, or a folder, comes back from a backup; a part of a sentence. path: of it.

    The command looks whether the copy is whole, and replaces nothing that is whole.
    """
    return f"from a backup ({quoted('restore', path, '--from', 'COPY', '--yes')})"


def discard(path: str) -> str:
    """The command that deletes a file, or a folder, which an error names, in brackets. path: of it.

    The command looks what it is, shows what goes with it, and refuses what is needed.
    """
    return f"({quoted('discard', path, '--yes')})"


def set_option(root: str, name: str) -> str:
    """The command that sets an option of a Paimon table, in brackets."""
    return f"({quoted('set-options', root, f'{name}=VALUE', '--yes')})"


def command(*words: str) -> str:
    """Another command, in brackets. words: behind the name of the program."""
    return f"({quoted(*words)})"


def quoted(*words: str) -> str:
    """The same in quotation marks, for a line that has no brackets."""
    return f"'streamsink {shlex.join(words)}'"
