"""`rjemu plugins`: the plugins there are, with their settings."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rjemu.errors import ConfigError
from rjemu.plugins.registry import find_plugin, plugin_places


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plugins", description="List the plugins that a configuration's `plugins` object can name, and their settings."
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    found = [_described(name, place) for name, place in sorted(plugin_places().items())]
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    for plugin in found:
        print(f"{plugin['name']}: {plugin.get('error') or plugin['summary']}")
        for key, setting in plugin.get("settings", {}).items():
            default = "required" if setting["required"] else f"default {json.dumps(setting['default'])}"
            print(f"  {key} ({setting['type']}, {default}): {setting['description']}")
    return 0


def _described(name: str, place: str) -> dict[str, Any]:
    try:
        kind = find_plugin(name)
    except ConfigError as error:  # another package's plugin that cannot be imported must not hide the rest
        return {"name": name, "class": place, "error": str(error)}
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    settings = {key: setting.as_json() for key, setting in kind.SETTINGS.items()}
    asynchronous = kind.supports_async_instructions()
    return {"name": name, "class": place, "summary": summary, "supports_async": asynchronous, "settings": settings}
