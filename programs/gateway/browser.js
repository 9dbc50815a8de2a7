// What `browser.sh` checks of the page by a script that stands behind its own: states that are hard
// to bring about, and what a refresh leaves alone. It runs before anything is painted.
"use strict";
const results = [];
function check(what, is) { results.push(`${is ? "ok" : "FAILED"}: ${what}`); }

function counts(outcomes, factor = 1) {
  return Object.fromEntries(Object.entries(outcomes).map(([outcome, count]) =>
    [outcome, Array.from({ length: SECONDS }, (_, second) => (second % 7 ? count * factor : 0))]));
}
function policy(name, more = {}) {
  return { name, algorithm: "token_bucket", limit: 5, period: "1s", on_error: "deny", mode: "on", ...more };
}
function table(size, factor = 1) {
  const policies = Array.from({ length: size }, (_, at) => policy(`policy-${at}`));
  const seconds = Object.fromEntries(policies.map((one, at) =>
    [one.name, counts({ allowed: at % 50 + 1, limited: at % 3, off: at % 2, failed_open: at % 5 ? 0 : 1 }, factor)]));
  return { counts: { policies: size, on: size, shadow: 0, off: 0 }, requests: counts({ allowed: 20, limited: 3, off: 2, no_policy: 1 }, factor), policies, seconds, switch: "on", store: null, file: null };
}

// Refreshes: first, as after it nothing else is on the page.
{
  let factor = 1;
  const refresh = size => {
    const data = table(size, ++factor), begun = performance.now();
    show(data);
    void document.body.offsetHeight;
    return performance.now() - begun;
  };
  refresh(1000);
  const times = Array.from({ length: 15 }, () => refresh(1000)).sort((a, b) => a - b);
  const text = `1,000 policies refresh in ${times[0].toFixed(1)} ms, at the median ${times[7].toFixed(1)} ms`;
  // The quickest: the machine does other work beside.
  check(text, times[0] <= 50);
}

// Updates in place.
{
  show(table(20));
  const nodes = [...document.querySelectorAll("#rows *, #legend *, #plot *")];
  const button = document.querySelector("[data-policy=policy-3] button");
  button.focus();
  button.click();
  getSelection().selectAllChildren(document.querySelector("[data-policy=policy-7] small"));
  const selected = getSelection().toString();
  show(table(20, 3));
  check("a refresh keeps every element", nodes.every(node => node.isConnected));
  check("a refresh keeps the focus", document.activeElement === button);
  check("a refresh keeps the selection of a text", selected !== "" && getSelection().toString() === selected);
  check("a refresh keeps the row that was chosen", button.getAttribute("aria-pressed") === "true" && element("of").textContent.startsWith("policy-3:"));
  check("a refresh changes the numbers", document.querySelector("[data-policy=policy-3] .allowed-count").textContent === number(51 * 4 * 3));
  const other = table(20, 3);
  other.policies.splice(5, 1);
  other.policies.splice(2, 0, policy("new"));
  show(other);
  const names = [...document.querySelectorAll("#rows tr")].map(row => row.dataset.policy);
  check("rows are those of the table, in its order", names.join() === other.policies.map(one => one.name).join());
  check("another table keeps the other rows", document.activeElement === button);
  getSelection().removeAllRanges();
  document.querySelector("[data-policy=policy-4] .allowed-count").click();
  check("a click on a row chooses it", chosen === "policy-4");
  element("all").click();
  check("all requests are shown again", chosen === null);
}

// Reached by keyboard, and named.
{
  const buttons = [...document.querySelectorAll("#rows tr")].map(row => row.querySelectorAll("button"));
  check("each row has a button that the keyboard reaches", buttons.every(([button, more]) => {
    button.focus();
    return !more && button.tabIndex === 0 && document.activeElement === button && button.textContent;
  }));
  scrollTo(0, 0);
  drawVisible();
  const images = [...document.querySelectorAll("svg[role=img]")].filter(one => (one.closest("tr") || one).getBoundingClientRect().top < innerHeight);
  check("each graph has a name with numbers", images.length > 2 && images.every(one => /\d |: none/.test(one.getAttribute("aria-label"))));
  check("each column has a name", [...document.querySelectorAll("th")].every(one => one.scope === "col" && one.textContent));
}

// What is drawn and counted.
{
  const data = table(2);
  data.seconds = { "policy-0": counts({ allowed: 5 }), "policy-1": counts({ allowed: 5, off: 2, failed_open: 1 }) };
  data.requests = { allowed: [131] };
  data.counts = { policies: 1209, on: 1, shadow: 1200, off: 8 };
  show(data);
  check("the header says how many policies are in force", element("state").textContent === "1 policy in force, 1,200 in a shadow, 8 off");
  check("the headline counts requests", element("of").textContent === "131 requests in the last minute: 131 allowed");
  check("the axis has numbers", element("top").textContent === "200" && element("half").textContent === "100");
  const drawn = outcome => document.querySelector(`[data-policy=policy-1] path.${outcome}`).getAttribute("d").startsWith("M");
  check("what is not limited is drawn", drawn("off") && drawn("failed_open"));
  check("what never came is not drawn", !drawn("limited"));
  check("the words are those of the field", ["allowed", "delayed", "limited", "errors", "shadow"].every(word => element("heads").textContent.includes(word)));
}

// Alarms, the loudest first, each with what callers get.
{
  const alarm = (change, gone = null) => {
    const data = table(6);
    data.seconds = {};
    data.requests = {};
    data.policies[1].on_error = "allow";
    data.policies[2].on_error = "local:5";
    change(data);
    since = gone;
    show(data);
    return [...document.querySelectorAll("#alarms li")].map(one => [one.className, one.firstChild.textContent, one.lastChild.textContent].join("|"));
  };
  const is = (what, [found = ""], ...parts) => check(`an alarm says ${what}`, parts.every(part => found.includes(part)));
  check("there is no alarm while all is well", alarm(() => {}).length === 0);
  is("that all limits are off", alarm(data => { data.switch = "off"; }), "grave|All limits are off", "Every request passes");
  is("that nothing can be decided", alarm(data => { data.store = "no connection"; }), "grave|No limit can be decided", "503 under 4 policies",
     "through without a limit under 1 policy", "their share of this process under 1 policy", "no connection");
  is("that limits fail open", alarm(data => { data.requests = { failed_open: [0, 7] }; }), "grave|Limits fail open", "7 requests");
  is("that an older table is in force", alarm(data => { data.file = "line 3"; }), "mild|An older table", "line 3");
  is("that all are in shadow", alarm(data => { data.switch = "shadow"; }), "mild|All policies are in shadow");
  is("which policies are off", alarm(data => { data.policies[4].mode = "off"; }), "mild|1 policy is off: policy-4", "Requests pass");
  is("that the gateway is gone", alarm(data => { data.file = "line 3"; }, Date.now() - 9000), "grave|The gateway does not answer", "9 seconds old");
  check("the title of the page is the alarm", document.title.startsWith("The gateway does not answer"));
  const size = target => parseFloat(getComputedStyle(target).fontSize);
  check("an alarm is larger than what is below it", size(document.querySelector("#alarms strong")) > size(element("of")));
  since = null;
}

// Contrast: 4.5 of texts, 3 of what is drawn.
{
  const data = table(3);
  Object.assign(data, { store: "no connection", file: "line 3" });
  data.policies[1].mode = "off";
  show(data);
  if (chosen === null) choose("policy-0");
  const rgb = color => color.match(/[\d.]+/g).map(Number);
  const light = color => {
    const [r, g, b] = rgb(color).slice(0, 3).map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const behind = target => {
    for (let one = target; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (!/, 0\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *")].filter(one =>
    one.checkVisibility() && !["SCRIPT", "STYLE", "NOSCRIPT"].includes(one.tagName) && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  const weakest = texts.map(one => [contrast(getComputedStyle(one).color, behind(one)), one.textContent.slice(0, 30)]).sort((a, b) => a[0] - b[0])[0];
  check(`the weakest contrast of ${texts.length} texts is ${weakest[0].toFixed(2)} (${weakest[1]})`, weakest[0] >= 4.5);
  const papers = [behind(element("graph")), behind(document.querySelector("[data-chosen] td"))];
  const drawn = OUTCOMES.flatMap(outcome => papers.map(paper =>
    [contrast(getComputedStyle(document.querySelector(`#legend .${outcome}`)).fill, paper), outcome])).sort((a, b) => a[0] - b[0])[0];
  check(`the weakest contrast of what is drawn is ${drawn[0].toFixed(2)} (${drawn[1]})`, drawn[0] >= 3);
  check(`the paper is ${behind(document.body)}`, true);
}
document.body.append(Object.assign(document.createElement("pre"), { id: "results", textContent: results.join("\n") }));
