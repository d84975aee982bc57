"""The page: what it shows, that names cannot break it, and that a browser shows it offline."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from phasescope.reporting.method import Method
from phasescope.reporting.run_page import figures_of, render
from tests.builders.findings import analysis_of

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "\u202eevil\u202c",
    "שלום/W8",
    "x" * 400,
    "a' onmouseover='b",
)


def method(*, seed=0, draws=2000, **fields):
    """A method text with little in it."""
    return Method(seed, draws, **{"seeds": {"x": 0}, "compared": 1, **fields})


class Reader(HTMLParser):
    """The tags, their attributes, and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(sensitive, flat, control, make_condition):
    """A control, a sensitive and a flat condition."""
    conditions = [make_condition("full", control=True), make_condition("w8s8"), make_condition("four-heads")]
    return render(analysis_of(conditions, [*sensitive(), *flat(), *control()]), method())


def test_the_sections_stand_in_order_with_controls_before_conditions(page):
    """Verdict first, then the negative controls, then everything else."""
    read = Reader(page)
    assert [a["id"] for tag, a in read.tags if tag == "section" and "class" not in a] == [
        "controls",
        "overview",
        "conditions",
        "findings",
        "method",
        "reproduce",
    ]
    assert "1 of 2 tested conditions are phase-sensitive" in page[: page.index('id="controls"')]
    assert page.index(">full<") < page.index(">w8s8<")


def test_every_figure_is_named_described_and_has_a_table(page):
    """Three figures a condition and the forest, each with unique ids, a title, a description and its numbers."""
    read = Reader(page)
    assert sum(tag == "svg" for tag, _ in read.tags) == 3 * 3 + 1
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in read.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert set(attributes["aria-labelledby"].split()) <= set(ids)
    for figure in re.findall(r"<figure.*?</figure>", page, re.S):
        assert figure.count("<table") == 1


def test_the_page_asks_for_nothing_outside_itself(page):
    """No script, no link but to its own sections, and a policy that would forbid more."""
    read = Reader(page)
    assert not {"script", "img", "iframe", "object", "form"} & {tag for tag, _ in read.tags}
    assert all(a["href"].startswith(("#", "data:")) for tag, a in read.tags if tag in ("a", "link"))
    policy = [a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert not re.search(r"https?://|url\(|@import", page)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_text(name, sensitive, control, make_condition):
    """Whatever a condition is called, the page has the tags and attributes of a page with a plain name."""

    def shape(condition):
        conditions = [
            make_condition("full", control=True, run=condition),
            make_condition(condition, run=condition),
        ]
        texts = method(
            rows=[(condition,)],
            commands=[condition],
            versions=[(condition, condition)],
            protocols=[condition],
            seeds={condition: 1},
        )
        rendered = render(analysis_of(conditions, [*sensitive(condition), *control()]), texts)
        assert "\u202e" not in rendered[: rendered.index('id="method"')]
        return [(tag, sorted(attributes)) for tag, attributes in Reader(rendered).tags]

    assert shape(name) == shape("plain")


def test_a_report_without_control_says_so(sensitive, make_condition):
    """The warning stands where the controls would."""
    rendered = render(analysis_of([make_condition("w8s8")], sensitive()), method())
    assert "No control condition was measured" in rendered
    assert rendered.count("<svg") == 4


def test_a_report_with_only_a_control_or_nothing_is_whole(control, make_condition):
    """A lone control has its section and no empty one; nothing measured is said."""
    alone = render(analysis_of([make_condition("full", control=True)], control()), method())
    assert 'id="conditions"' not in alone
    assert "Control full is flat" in alone
    assert "Nothing was measured." in render(analysis_of([], []), method())


def test_the_log_probability_and_the_correction_are_shown(sensitive, make_condition):
    """The finer outcome is a key number of its own, and corrected p-values have their column."""
    finer = [
        f.model_copy(update={"outcome": "logprob", "value": 1.234})
        for f in sensitive()
        if f.name == "phase_sd"
    ]
    rendered = render(analysis_of([make_condition("w8s8")], [*sensitive(), *finer]), method(compared=6))
    assert "1.23" in rendered
    assert "over up to 6 conditions" in rendered
    assert "p, corrected" in rendered
    assert "raise --draws" not in rendered


def test_too_few_draws_for_so_many_conditions_is_said():
    """Six conditions and 100 permutations: no corrected p can reach 0.05, and silence would look like flatness."""
    few = method(compared=6, draws=100)
    assert "raise --draws" in render(analysis_of([], []), few)


def test_an_unfinished_run_warns_at_the_top(sensitive, make_condition):
    """Half a run looks like a run; the warning stands before everything but the verdict."""
    rendered = render(
        analysis_of([make_condition("w8s8")], sensitive()), method(unfinished=["Not finished: w8s8"])
    )
    assert rendered.index("Not finished: w8s8") < rendered.index('id="controls"')


def test_the_figures_are_there_for_a_notebook(sensitive, control, make_condition, tmp_path):
    """By name; each a file of its own that needs no style sheet beside it."""
    conditions = [make_condition("full", control=True), make_condition("w8s8")]
    figures = figures_of(analysis_of(conditions, [*sensitive(), *control()]))
    assert len(figures) == 1 + 2 * 3
    figure = figures["w8s8: Accuracy by phase"]
    figure.save(tmp_path / "figure.svg")
    root = ElementTree.fromstring((tmp_path / "figure.svg").read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "--condition" in root[0].text
    assert figure._repr_svg_() == figure.standalone
    assert "data:image/svg+xml;base64," in figure._repr_html_()
    assert repr(figure) == "Figure('Accuracy by phase', 8 rows)"


def test_context_shares_are_means_of_each_context_at_each_phase(make_condition):
    """Four contexts by eight phases; phase 7 was never right."""
    shares = analysis_of([make_condition("w8s8")], [])["w8s8"].condition.context_shares()
    assert shares.shape == (4, 8)
    np.testing.assert_array_equal(shares, np.tile([1.0] * 7 + [0.0], (4, 1)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium that logs its console and its network."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: pip install selenium"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no browser: the page was NOT looked at; install chromium and chromedriver to test it")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page_offline_without_errors_or_overflow(
    browser, width, scheme, tmp_path, sensitive, control, make_condition
):
    """No console message, no request but for the file, all figures visible, nothing wider than the screen."""
    run = "q" * 300
    conditions = [make_condition("full", True, run), *(make_condition(name, run=run) for name in HOSTILE)]
    found = [*control(), *(finding for name in HOSTILE for finding in sensitive(name))]
    texts = method(
        rows=[("y" * 200,) * 9], commands=["phasescope measure " + "z" * 300], versions=[("v", "w" * 900)]
    )
    file = tmp_path / "report.html"
    file.write_text(render(analysis_of(conditions, found), texts), encoding="utf-8")
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get_log("performance")
    browser.get(file.as_uri())
    for details in browser.find_elements("tag name", "details"):
        browser.execute_script("arguments[0].open = true", details)

    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    root = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    needed, there = browser.execute_script(root)
    assert needed <= there <= width
    figures = browser.find_elements("css selector", "figure svg")
    assert len(figures) == 3 * (len(HOSTILE) + 1) + 1
    assert all(figure.is_displayed() and figure.size["width"] >= 300 for figure in figures)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) > 384) == (scheme == "light")
    smallest = browser.execute_script(
        "return Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getScreenCTM().a"
        " * parseFloat(getComputedStyle(t).fontSize)))"
    )
    assert smallest >= 9.5
