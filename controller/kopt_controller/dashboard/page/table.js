// A table whose headings sort it, over rows that are here or that the server has.

import { el } from "./format.js";

// columns: {name, title, class}; change is called with nothing when the order changes.
export class Heads {
  constructor(table, columns, sort, descending, change) {
    this.columns = columns;
    this.sort = sort;
    this.descending = descending;
    this.cells = columns.map((column) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => {
        this.descending = this.sort === column.name ? !this.descending : Boolean(column.descending);
        this.sort = column.name;
        this.show();
        change();
      });
      return el("th", { scope: "col", class: column.class ?? "" }, button);
    });
    table.tHead.replaceChildren(el("tr", {}, ...this.cells));
    this.show();
  }

  show() {
    this.columns.forEach((column, index) => {
      const order = this.descending ? "descending" : "ascending";
      this.cells[index].setAttribute("aria-sort", column.name === this.sort ? order : "none");
    });
  }

  compare(a, b) {
    const x = a[this.sort], y = b[this.sort];
    const none = (value) => value === null || value === undefined || value === "";
    if (none(x) || none(y)) return none(x) - none(y);
    const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return this.descending ? -order : order;
  }
}

export function later(milliseconds, act) {
  let waiting = null;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(act, milliseconds);
  };
}
