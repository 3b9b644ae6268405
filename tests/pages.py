"""Pages of the dashboard as a person reads them."""

import re
from html import escape, unescape


def text_of(page):
    """The words of the page."""
    shown = re.sub(r"<[^>]*>", " ", page.text)
    return " ".join(unescape(shown).replace("\xa0", " ").split())


def beside(page, field):
    """What the form has in a field, and what the page says is wrong with it."""
    found = re.search(rf'name="{re.escape(escape(field))}" value="([^"]*)".*?</label>', page.text, re.DOTALL)
    assert found, f"no field {field}"
    wrong = re.search(r'class="wrong"[^>]*>([^<]*)', found[0])
    return unescape(found[1]), unescape(wrong[1]) if wrong else ""


def posts_of(page):
    """Where the forms of the page lead that change something."""
    return [unescape(each) for each in re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', page.text)]
