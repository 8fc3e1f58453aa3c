// The script of the dashboard. Pages can be read and forms can be sent without it. It adds:
//   times in the viewer's zone, live fragments, questions before destructive forms, keys, and values under the pointer.
"use strict";

const base = document.querySelector("meta[name=base]").content;
const language = document.documentElement.lang;
// Sweden writes 2026-11-18 14:05:09, which everybody reads the same way and which sorts.
const dates = "sv-SE";

// Times ------------------------------------------------------------------------------------------------------------

const formats = {
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  time: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { day: "numeric", month: "short" },
  full: { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
};
const formatters = Object.fromEntries(
  Object.entries(formats).map(([name, options]) => [name, new Intl.DateTimeFormat(name === "full" ? dates : language, options)]),
);
const withZone = new Intl.DateTimeFormat(dates, { ...formats.full, timeZoneName: "short" });

function localize(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const formatter = formatters[element.dataset.style];
    if (formatter) element.textContent = formatter.format(moment);
    if (element.title) element.title = withZone.format(moment);
  }
}

// Live fragments ---------------------------------------------------------------------------------------------------
// The new HTML is merged into the old elements, so that focus, scroll positions, open details and typed text stay.

function merge(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  const isField = old.matches("input:not([type=hidden]), textarea, select");
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !(isField && name === "value")) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  if (isField && old.nodeName !== "SELECT") return;
  mergeChildren(old, fresh);
}

function mergeChildren(old, fresh) {
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id ? known.get(child.id) : null;
    if (same) {
      if (same !== at) old.insertBefore(same, at);
      else at = at.nextSibling;
      merge(same, child);
    } else if (at && !at.id && !child.id && at.nodeName === child.nodeName) {
      const next = at.nextSibling;
      merge(at, child);
      at = next;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function swap(name, html) {
  const old = document.getElementById(`live-${name}`);
  if (!old) return false;
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.firstElementChild;
  const token = document.querySelector("meta[name=csrf]").content;
  for (const field of fresh.querySelectorAll("input[name=csrf]")) field.setAttribute("value", token);
  // Localized before the merge, so that a time that did not change is not written again.
  localize(template.content);
  merge(old, fresh);
  return true;
}

function watch(path) {
  const state = document.getElementById("connection");
  const show = (name) => {
    state.dataset.state = name;
    state.textContent = state.dataset[`${name}Text`];
  };
  let source = null;
  let timer = 0;
  const connect = () => {
    source = new EventSource(`${base}/live?path=${encodeURIComponent(path)}`);
    source.addEventListener("open", () => show("live"));
    source.addEventListener("fragments", (event) => {
      show("live");
      const found = Object.entries(JSON.parse(event.data)).map(([name, html]) => swap(name, html));
      // The page was an error page, and the real one can be had again.
      if (found.includes(false) && document.querySelector("[data-unavailable]")) location.reload();
    });
    source.addEventListener("error", async () => {
      show("lost");
      if (source.readyState !== EventSource.CLOSED) return;
      source = null;
      const answer = await fetch(location.href, { redirect: "manual", cache: "no-store" }).catch(() => null);
      // The session has ended: the page itself leads to the login.
      if (answer && answer.type === "opaqueredirect") location.reload();
      else timer = setTimeout(connect, 2000);
    });
  };
  const disconnect = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };
  // A page in the background costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else if (!source) connect();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", () => source || connect());
}

// Questions before destructive forms -------------------------------------------------------------------------------

document.addEventListener("submit", (event) => {
  const form = event.target;
  const question = form.dataset.confirm;
  const dialog = document.getElementById("confirm");
  if (!question || form.dataset.confirmed || !dialog) return;
  event.preventDefault();
  document.getElementById("confirm-text").textContent = question;
  const submitter = event.submitter;
  if (submitter) dialog.querySelector("[data-yes]").textContent = submitter.textContent.trim();
  dialog.returnValue = "";
  dialog.addEventListener(
    "close",
    () => {
      if (dialog.returnValue !== "yes") {
        if (submitter) submitter.focus();
        return;
      }
      form.dataset.confirmed = "yes";
      form.requestSubmit(submitter);
      delete form.dataset.confirmed;
    },
    { once: true },
  );
  dialog.showModal();
});

// Keys -------------------------------------------------------------------------------------------------------------

let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const keys = before ? `${before} ${event.key}` : event.key;
  before = "";
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  } else if (event.key === "?") {
    const help = document.getElementById("keys");
    if (help) help.showModal();
  } else if (keys === "g") {
    before = "g";
    setTimeout(() => (before = ""), 1200);
  } else {
    const target = keys === "n" ? document.querySelector("a[rel=next]") : document.querySelector(`a[data-keys="${CSS.escape(keys)}"]`);
    if (target) target.click();
  }
});

// The values of a chart under the pointer --------------------------------------------------------------------------

function point(event) {
  const plot = event.target.closest && event.target.closest(".chart[data-times] .plot");
  for (const other of document.querySelectorAll(".chart[data-pointed]")) {
    if (!plot || !other.contains(plot)) unpoint(other);
  }
  if (!plot) return;
  const chart = plot.closest(".chart");
  const area = plot.querySelector("svg").getBoundingClientRect();
  const start = Number(chart.dataset.start);
  const span = Number(chart.dataset.end) - start;
  const wanted = start + (span * (event.clientX - area.left)) / area.width;
  const times = chart.dataset.times.split(" ").map(Number);
  let nearest = 0;
  times.forEach((time, at) => {
    if (Math.abs(time - wanted) < Math.abs(times[nearest] - wanted)) nearest = at;
  });
  chart.dataset.pointed = "yes";
  const x = (600 * (times[nearest] - start)) / span;
  chart.querySelector(".cursor").setAttribute("d", `M${x},0V150`);
  for (const entry of chart.querySelectorAll(".legend li")) {
    const value = entry.querySelector("b");
    entry.dataset.last ??= value.textContent;
    value.textContent = entry.dataset.values.split("|")[nearest];
  }
  const title = chart.querySelector(".chart-title");
  title.dataset.last ??= title.textContent;
  title.textContent = `${title.dataset.last} · ${formatters[span > 172800 ? "full" : "clock"].format(new Date(times[nearest] * 1000))}`;
}

function unpoint(chart) {
  delete chart.dataset.pointed;
  chart.querySelector(".cursor")?.setAttribute("d", "");
  for (const element of chart.querySelectorAll("[data-last]")) {
    (element.querySelector("b") || element).textContent = element.dataset.last;
    delete element.dataset.last;
  }
}

document.addEventListener("pointermove", point, { passive: true });
document.addEventListener("pointerleave", point, { passive: true });

// The start --------------------------------------------------------------------------------------------------------

localize(document);
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
if (document.body.dataset.live) watch(document.body.dataset.live);
// The message about a form is said once: a reload does not say it again.
if (document.querySelector("[data-done]")) {
  const address = new URL(location.href);
  address.searchParams.delete("done");
  address.searchParams.delete("what");
  history.replaceState(null, "", address);
}
for (const back of document.querySelectorAll("[data-back]")) {
  if (history.length > 1) {
    back.addEventListener("click", (event) => {
      event.preventDefault();
      history.back();
    });
  }
}
