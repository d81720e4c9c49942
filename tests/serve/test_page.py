"""The page in a real Chromium, on a running service."""

from __future__ import annotations

import json
import re

import pytest
from browser import chromium, find_browser, running
from page_models import EMOJI, HEBREW, HOSTILE

import ramify


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright.sync_api", reason="the page is tested in a browser; install the extra dev")
    path = find_browser()
    if path is None:
        pytest.skip("the page is not tested in a browser: install Chromium (apt install chromium)")
    with chromium(path) as browser:
        yield browser


@pytest.fixture(scope="module")
def address(paths, browser):
    from ramify.serve import Settings, create_app

    with running(create_app(paths, Settings(threads=1, reload_every=0))) as address:
        yield address


@pytest.fixture
def page(browser, address):
    """The page, ready to type; fails for an error on the console and for anything that the policy has blocked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.errors = errors
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert page.title() != "hacked"
    context.close()
    assert not [error for error in errors if "404" not in error]  # a missing report is an answer, not an error


def type_text(page, text):
    page.fill("#text", text)
    page.wait_for_function("() => document.querySelectorAll('#labels li').length > 0")


def rows(page):
    return page.eval_on_selector_all(
        "#labels li",
        "items => items.map(item => [JSON.parse(item.dataset.key), item.querySelector('.name bdi').textContent,"
        " item.querySelector('.score').title])",
    )


def settled(page, act):
    """Act, and wait until the list of labels was drawn again."""
    before = page.evaluate("Number(document.body.dataset.shown ?? 0)")
    act()
    page.wait_for_function(f"() => Number(document.body.dataset.shown ?? 0) > {before}")


def test_labels_appear_as_you_type(page, paths):
    assert "Type or paste" in page.inner_text("#empty")
    text = "the whale and the ocean"
    page.type("#text", text)  # key by key: answers to earlier keys must not remain
    model = ramify.load(paths["linear"])
    expected = model.predict_topk([text], 8, probabilities=True).labels()[0]
    page.wait_for_function(
        "key => document.querySelector('#labels li')?.dataset.key === key", arg=json.dumps(expected[0][0])
    )
    page.wait_for_timeout(150)
    found = rows(page)
    assert [label for label, _, _ in found] == [label for label, _ in expected]
    assert [float(score) for _, _, score in found] == pytest.approx([score for _, score in expected], abs=6e-4)
    assert "ms" in page.inner_text("#timing")
    assert page.inner_text("#count") == "5 words"
    settled(page, lambda: page.click("#clear"))
    assert rows(page) == []


def test_names_of_every_kind_are_shown_as_they_are(page):
    type_text(page, "escape the attack script in the browser; a fox in the forest; sail a ship")
    names = {label: name for label, name, _ in rows(page)}
    assert names[HOSTILE] == HOSTILE
    assert names["http://example.org/ship"] == HEBREW
    assert names["http://example.org/fox"] == EMOJI
    page.locator("#labels .name").nth(list(names).index("http://example.org/fox")).click()
    page.wait_for_selector("#why .words")
    assert EMOJI in page.inner_text("#why h2")
    assert page.locator("#labels img, #why img").count() == 0


def test_k_threshold_rule_and_filter(page):
    type_text(page, "the whale swim in the ocean")
    settled(page, lambda: page.evaluate("k.value = 3; k.dispatchEvent(new Event('input'))"))
    assert len(rows(page)) == 3
    assert page.inner_text("#k-value") == "3"
    settled(page, lambda: page.evaluate("threshold.value = 0.95; threshold.dispatchEvent(new Event('input'))"))
    assert all(float(score) >= 0.95 for _, _, score in rows(page))
    settled(page, lambda: page.evaluate("threshold.value = 0; threshold.dispatchEvent(new Event('input'))"))
    settled(page, lambda: page.select_option("#rule", "default"))
    assert 1 <= len(rows(page)) <= 3
    settled(page, lambda: page.select_option("#rule", ""))
    settled(page, lambda: page.fill("#filter", "bread"))  # far from the text, but that is what is asked for
    assert [name for _, name, _ in rows(page)] == ["Bread"]
    assert page.inner_text("#filter-value") == "1"
    settled(page, lambda: page.fill("#filter", "nothing has this name"))
    assert page.inner_text("#filter-value") == "0"
    assert "No label of the model" in page.inner_text("#empty")


def test_a_small_probability_is_told_in_three_digits(page):
    type_text(page, "the whale swim in the ocean")
    shown = page.eval_on_selector_all("#labels .score", "all => all.map(one => [one.textContent, Number(one.title)])")
    assert any(score < 0.0005 for _, score in shown)
    for text, score in shown:
        assert text == ("<0.001" if score < 0.0005 else f"{score:.3f}")


def test_what_the_model_is(page, paths):
    page.wait_for_selector("#about dl")
    about = page.inner_text("#about")
    model = ramify.load(paths["linear"])
    assert "About linear" in about
    assert "8; half of them with at least" in about
    assert "300 texts" in about
    assert "probabilities, fitted on 100 texts" in about
    assert str(model.rule_.name) in about
    type_text(page, "the whale")
    page.click("#labels li:nth-child(1) .name")
    page.wait_for_selector("#why .words")
    assert page.is_hidden("#about")  # the explanation takes its place
    page.keyboard.press("Escape")
    page.select_option("#model", "popular")
    page.wait_for_function("() => document.querySelector('#about').textContent.includes('raw scores')")


def test_why_a_label_is_there_and_what_changes_without_a_word(page, paths):
    text = "the whale and the ship on the ocean"
    type_text(page, text)
    label = "http://example.org/whale"
    page.click("#labels li:has-text('Whales') .name")
    page.wait_for_selector("#why .words")
    model = ramify.load(paths["linear"])
    explanation = model.explain(text, label)
    for word, value in explanation.terms:
        button = page.locator("#why .word").filter(has_text=re.compile(f"^{word}$")).first
        assert float(button.get_attribute("title").replace("−", "-")) == pytest.approx(value, abs=6e-5)
        assert ("for-" if value > 0 else "against-") in button.get_attribute("class")
    shown = page.locator("#why .path li").all_inner_texts()
    assert len(shown) == len(explanation.levels)
    assert page.locator("#why .chips li").count() >= 1
    settled(page, lambda: page.click("#why .word >> text=whale"))
    without = model.predict_topk([text.replace("whale", "")], 8, probabilities=True).labels()[0]
    assert [(key, float(score)) for key, _, score in rows(page)] == [
        (key, pytest.approx(score, abs=6e-4)) for key, score in without
    ]
    assert page.locator("#labels .down").count() >= 1
    assert page.get_attribute("#why .word[aria-pressed=true]", "class") is not None
    settled(page, lambda: page.click("#left-out >> text=Put all back"))
    assert page.locator("#left-out .chip").count() == 0
    page.keyboard.press("Escape")
    assert page.is_hidden("#why")


def test_decisions_are_downloaded_as_training_data(page, tmp_path):
    type_text(page, "the whale and the ocean")
    first, second = rows(page)[0][0], rows(page)[1][0]
    page.click("#labels li:nth-child(1) .accept")
    page.click("#labels li:nth-child(2) .reject")
    page.click("#labels li:nth-child(3) .accept")
    page.click("#labels li:nth-child(3) .accept")  # taken back
    settled(page, lambda: page.fill("#text", "bread from the oven"))
    page.wait_for_function("() => document.querySelector('#labels li .name bdi').textContent === 'Bread'")
    page.click("#labels li:nth-child(1) .accept")
    assert page.inner_text("#decided") == "2 accepted, 1 rejected in 2 texts"
    with page.expect_download() as download:
        page.click("#download")
    path = tmp_path / "decisions.jsonl"
    download.value.save_as(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "text": "the whale and the ocean", "labels": [first], "rejected": [second], "model": "linear",
        "version": lines[0]["version"],
    }  # fmt: skip
    data = ramify.read(path, fields=["text"])
    assert data.labels() == [[first], ["http://example.org/bread"]]
    ramify.XRLinear(verbose=0).fit(data.texts, data.labels())


def test_copies_labels_as_json_tsv_and_uris(page):
    type_text(page, "the whale and the ocean")
    found = rows(page)
    copied = {}
    for kind in ("json", "tsv", "uris"):
        page.click(f"[data-copy={kind}]")
        page.wait_for_selector(f"[data-copy={kind}].done")
        copied[kind] = page.evaluate("navigator.clipboard.readText()")
    assert [entry["label"] for entry in json.loads(copied["json"])] == [label for label, _, _ in found]
    assert copied["uris"].split("\n") == [label for label, _, _ in found]
    table = [line.split("\t") for line in copied["tsv"].split("\n")]
    assert table[0] == ["label", "name", "score"]
    assert [row[:2] for row in table[1:]] == [[label, name] for label, name, _ in found]


def test_the_keyboard_alone(page):
    page.keyboard.type("a fox in the forest")
    page.wait_for_selector("#labels li")
    page.wait_for_timeout(200)
    page.focus("#labels li:nth-child(1) .name")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("a")
    assert page.get_attribute("#labels li:nth-child(2) .accept", "aria-pressed") == "true"
    page.keyboard.press("r")
    assert page.get_attribute("#labels li:nth-child(2) .accept", "aria-pressed") == "false"
    assert page.get_attribute("#labels li:nth-child(2)", "class") == "rejected"
    page.keyboard.press("Enter")
    page.wait_for_selector("#why .word")
    page.focus("#why .word >> nth=0")
    page.keyboard.press("ArrowRight")
    settled(page, lambda: page.keyboard.press("Enter"))
    page.wait_for_selector("#why .word[aria-pressed=true]")
    assert page.inner_text("#why .word[aria-pressed=true]") == "fox"
    page.keyboard.press("Escape")
    assert page.is_hidden("#why")
    assert page.evaluate("document.activeElement.closest('#labels') !== null")


def test_the_map_leads_to_every_label(page, address):
    page.goto(f"{address}/#index")
    page.wait_for_selector(".area")
    assert "8 labels in" in page.inner_text("#map-note")
    boxes = [box.bounding_box() for box in page.locator(".area").all()]
    place = page.locator("#map").bounding_box()
    covered = sum(box["width"] * box["height"] for box in boxes)
    assert covered == pytest.approx(place["width"] * place["height"], rel=0.02)
    page.fill("#find", "star")
    page.click("#found button >> text=Stars")
    page.wait_for_selector("#label-facts h2")
    assert page.inner_text("#label-facts h2") == "Stars"
    assert page.inner_text("#cluster tr.wanted th") == "Stars"
    page.keyboard.press("Escape")
    page.wait_for_selector(".area")
    page.select_option("#model", "graph")
    page.wait_for_selector(".area")
    page.goto(f"{address}/#index/1.0")
    page.wait_for_selector("#cluster table")
    assert "Score of the edge" in page.inner_text("#cluster thead")
    page.select_option("#model", "popular")
    page.wait_for_function("() => document.querySelector('#map-note').textContent.includes('no clusters')")


def test_the_report_has_its_own_style(page, address):
    page.goto(f"{address}/#report")
    page.wait_for_function("() => document.querySelector('#report').shadowRoot?.querySelector('h1')")
    root = "document.querySelector('#report').shadowRoot"
    assert page.evaluate(f"{root}.querySelector('h1').textContent") == "linear"
    assert page.evaluate(f"getComputedStyle({root}.querySelector('.tile')).borderRadius") == "10px"
    assert page.evaluate(f"{root}.querySelectorAll('img, script').length") == 0
    page.select_option("#model", "graph")
    page.wait_for_function("() => document.querySelector('#report-note').textContent.includes('graph.report.html')")
    assert page.inner_text("#report-note code") == "ramify evaluate graph TEST --report graph.report.html"


def test_models_side_by_side(page, address, paths):
    type_text(page, "the whale and the ocean")
    page.goto(f"{address}/#compare")
    page.wait_for_function("() => document.querySelectorAll('.column').length === 4")
    for name in ("linear", "popular"):
        column = page.locator(f".column[aria-label={name}] li")
        model = ramify.load(paths[name])
        ranking = model.predict_topk(["the whale and the ocean"], 10, probabilities=model.is_calibrated)
        found = [json.loads(key) for key in column.evaluate_all("items => items.map(item => item.dataset.key)")]
        assert found == [label for label, _ in ranking.labels()[0]]


def test_text_fields_have_areas_of_their_own(page):
    page.select_option("#model", "records")
    page.fill("#text-title", "the whale and the ocean")
    page.wait_for_selector("#labels li")
    assert page.locator("textarea").count() == 2
    assert rows(page)[0][0] == "http://example.org/whale"


def test_an_error_is_told_in_words(page, address):
    page.route("**/v1/suggest", lambda route: route.abort())
    page.fill("#text", "the whale")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "does not answer" in page.inner_text("#trouble")
    page.unroute("**/v1/suggest")
    page.wait_for_selector("#labels li")  # it asks again by itself
    assert page.is_hidden("#trouble")
    page.errors.clear()


def test_a_token_is_asked_for(browser, paths):
    from ramify.serve import Settings, create_app

    settings = Settings(threads=1, reload_every=0, token="secret")
    with running(create_app({"linear": paths["linear"]}, settings)) as address:
        page = browser.new_page()
        page.goto(address)
        page.fill("#token", "wrong")
        page.click("#token-form button")
        page.wait_for_function("() => document.querySelector('#token-note').textContent.includes('refused')")
        page.fill("#token", "secret")
        page.click("#token-form button")
        page.wait_for_selector("body[data-ready]")
        type_text(page, "the whale")
        assert rows(page)[0][1] == "Whales"
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(page, address, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def check(view):
        found = axe.run(page, options={"resultTypes": ["violations"]})
        nodes = [(v["id"], n["html"][:200], n["target"]) for v in found.response["violations"] for n in v["nodes"]]
        assert not nodes, f"{view}: {nodes}"

    check("empty")
    type_text(page, "a fox in the forest and the whale in the ocean")
    page.click("#labels li:nth-child(1) .name")
    page.wait_for_selector("#why .words")
    page.click("#labels li:nth-child(2) .accept")
    page.click("#labels li:nth-child(3) .reject")
    settled(page, lambda: page.click("#why .word >> text=ocean"))
    check("try")
    for view, ready in (("index", ".area"), ("compare", ".column"), ("report", "#report-note[hidden]")):
        page.goto(f"{address}/#{view}")
        page.wait_for_selector(ready, state="attached")
        page.wait_for_timeout(200)
        check(view)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_the_file_of_a_report(browser, paths, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = browser.new_page(color_scheme=scheme, viewport={"width": 500, "height": 800})
    page.goto(f"file://{paths['linear']}.report.html")
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [(v["id"], node["html"][:200]) for v in found for node in v["nodes"]]
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
    page.close()


@pytest.mark.parametrize("width", [320, 390, 800])
def test_narrow_screens_need_no_scrolling_to_the_side(page, address, width):
    page.set_viewport_size({"width": width, "height": 800})
    type_text(page, "a fox in the forest")
    page.click("#labels li:nth-child(1) .name")
    page.wait_for_selector("#why .words")
    for view in ("try", "index", "compare", "report"):
        page.goto(f"{address}/#{view}")
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_the_layout_does_not_shift_while_typing(page):
    page.evaluate(
        "window.shift = 0; new PerformanceObserver(list => { for (const entry of list.getEntries()) window.shift +="
        " entry.value; }).observe({ type: 'layout-shift', buffered: true })"
    )
    type_text(page, "a")
    page.type("#text", " fox in the forest and a whale in the ocean")
    page.wait_for_timeout(300)
    assert page.evaluate("window.shift") < 0.02
