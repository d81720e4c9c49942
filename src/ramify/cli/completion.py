"""``ramify completion``: completion of commands, options, models and files for bash, zsh and fish."""

from __future__ import annotations

import argparse
from typing import Any

from ramify.cli.help import add_command

SHELLS = ("bash", "zsh", "fish")


def add_completion(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "completion", "Print the completion script of a shell.", print_completion)
    sub.add_argument("shell", choices=SHELLS, help="the shell")


def print_completion(args: argparse.Namespace) -> None:
    """Print the script, made from the parser of all commands."""
    from ramify.cli.parser import make_parser

    words = _words(make_parser())
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words))


def _words(parser: argparse.ArgumentParser, prefix: str = "") -> dict[str, list[str]]:
    """Words that may follow a command, by the command: options, subcommands and models."""
    found: dict[str, list[str]] = {prefix: []}
    for action in parser._actions:
        found[prefix] += [name for name in action.option_strings if name.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            found[prefix] += list(action.choices)
            for name, sub in action.choices.items():
                found.update(_words(sub, f"{prefix} {name}".strip()))
        elif action.choices is not None and not action.option_strings:
            found[prefix] += [str(choice) for choice in action.choices]
    return found


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'        "{command}") words="{" ".join(own)}" ;;' for command, own in words.items() if command)
    commands = " ".join(sorted({command.split()[0] for command in words if command}))
    return f"""_ramify() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" command="" words="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case " {commands} stats convert " in *" $word "*) command="${{command:+$command }}$word" ;; esac
    done
    case "$command" in
        "") words="{" ".join(words[""])}" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
}}
complete -o filenames -F _ramify ramify"""


def _zsh(words: dict[str, list[str]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(words)


def _fish(words: dict[str, list[str]]) -> str:
    lines = []
    for command, own in words.items():
        condition = f"__fish_seen_subcommand_from {command.split()[-1]}" if command else "__fish_use_subcommand"
        plain = [word for word in own if not word.startswith("--")]
        if plain:
            lines.append(f"complete -c ramify -n '{condition}' -a '{' '.join(plain)}'")
        lines += [f"complete -c ramify -n '{condition}' -l {word[2:]}" for word in own if word.startswith("--")]
    return "\n".join(lines)
