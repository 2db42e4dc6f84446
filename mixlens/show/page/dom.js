"use strict";
// Elements. Every text goes in as text, never as markup; styles go in by property, as the page's policy wants it.

const SVG = "http://www.w3.org/2000/svg";
let numbered = 0; // for ids, which labels need; unique within the root they are put into

/** An element with attributes, listeners (onclick ...), style ({ "--w": 0.5, width: "3px" }) and children; a string is text. */
function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for a part of an SVG picture. */
function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") for (const [name, one] of Object.entries(value)) element.style.setProperty(name, String(one));
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, key);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function freshId(stem) {
  numbered += 1;
  return `${stem}-${numbered}`;
}

/** A token that keeps its own writing direction. */
function word(text) {
  return make("bdi", {}, text);
}

function shortened(text, most) {
  const letters = Array.from(text);
  return letters.length > most ? `${letters.slice(0, most - 1).join(String())}…` : text;
}

const TO_THE_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;

/** "rtl" where the first letter of a text is written to the left, else "ltr". */
function directionOf(text) {
  const letter = text.match(/\p{L}/u);
  return letter && TO_THE_LEFT.test(letter[0]) ? "rtl" : "ltr";
}
