#!/usr/bin/env python3
"""Checks that every link, image, script and anchor of a built site leads somewhere: `site_links.py FOLDER`.

Doxygen's own links to anchors of its own pages are not looked at: it makes some that lead to a page's top.
Prints "page: what is wrong" for each finding; exit status 1 if there are any. Links to other hosts are not followed.
"""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8", errors="replace"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


def findings_of(site):
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no page found."
    api = (site / "api").resolve()
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for link in sorted(set(page.links)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{where}: the link to {link} leads nowhere."
            elif api in path.parents and api in target.parents:
                continue
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where}: {target.name} has no anchor for {link}."


def main():
    findings = list(findings_of(Path(sys.argv[1])))
    print("\n".join(findings) if findings else "docs: every link of the site leads somewhere")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
