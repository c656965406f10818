// Light Markdown as DOM nodes: fenced code, lists, headings (as bold lines), bold and inline code; all else is text.
//
// Nothing here parses HTML or makes a link: every character of the model reaches the page through textContent, so that
// hostile text stays text. Time is linear in the text. While an answer grows only the blocks that changed are replaced.

// [{kind: "code" | "list" | "heading" | "text", key, ...}]; equal keys render equally.
export function parseBlocks(text) {
  const blocks = [];
  const lines = text.split("\n");
  let paragraph = [];
  const endParagraph = () => {
    if (paragraph.length > 0) blocks.push({ kind: "text", text: paragraph.join("\n") });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ++at) {
    const line = lines[at];
    const fence = /^ {0,3}(`{3,}|~{3,})/.exec(line);
    const info = fence ? line.slice(fence[0].length).trim() : "";
    if (fence && !info.includes("`")) {
      endParagraph();
      const body = [];
      for (++at; at < lines.length && !closesFence(lines[at], fence[1]); ++at) body.push(lines[at]);
      blocks.push({ kind: "code", language: info.split(/\s/, 1)[0], text: body.join("\n") });
      continue;
    }
    const item = listItem(line);
    if (item) {
      endParagraph();
      const last = blocks[blocks.length - 1];
      if (last && last.kind === "list" && last.open && last.ordered === item.ordered) {
        last.items.push(item);
      } else {
        blocks.push({ kind: "list", ordered: item.ordered, start: item.number, items: [item], open: true });
      }
      continue;
    }
    const list = blocks[blocks.length - 1];
    if (paragraph.length === 0 && list && list.kind === "list" && list.open) {
      // A blank line may stand between items; an indented line goes on with the item above.
      if (line.trim() === "") continue;
      if (/^\s{2,}/.test(line)) {
        list.items[list.items.length - 1].text += "\n" + line.trim();
        continue;
      }
      list.open = false;
    }
    const heading = /^#{1,6} (.*)$/.exec(line);
    if (heading || line.trim() === "") endParagraph();
    if (heading) blocks.push({ kind: "heading", text: heading[1] });
    else if (line.trim() !== "") paragraph.push(line);
  }
  endParagraph();
  for (const block of blocks) block.key = JSON.stringify({ ...block, open: undefined });
  return blocks;
}

function closesFence(line, fence) {
  const end = line.trim();
  return end.length >= fence.length && end[0] === fence[0] && end.split("").every((sign) => sign === fence[0]);
}

function listItem(line) {
  const match = /^(\s{0,8})(?:[-*+]|(\d{1,9})[.)]) (.*)$/.exec(line);
  if (!match) return null;
  const [, indent, number, text] = match;
  return { ordered: number !== undefined, number: Number(number ?? 1), deeper: indent.length >= 2, text };
}

// Appends the text with `code` and **bold** to `parent`.
function appendInline(parent, text) {
  const withoutEnd = new Set(); // markers that have no partner further on
  let plain = 0;
  let at = 0;
  const flush = (end) => {
    if (end > plain) parent.append(text.slice(plain, end));
  };
  while (at < text.length) {
    const sign = text[at];
    if (sign !== "`" && sign !== "*") {
      ++at;
      continue;
    }
    let end = at;
    while (text[end] === sign) ++end;
    const marker = text.slice(at, end);
    const isBold = marker === "**";
    if ((sign === "*" && !isBold) || withoutEnd.has(marker)) {
      at = end;
      continue;
    }
    const close = text.indexOf(marker, end);
    if (close <= end) {
      if (close < 0) withoutEnd.add(marker);
      at = end;
      continue;
    }
    flush(at);
    const node = document.createElement(isBold ? "strong" : "code");
    node.textContent = text.slice(end, close);
    parent.append(node);
    at = plain = close + marker.length;
  }
  flush(text.length);
}

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function renderCode(block) {
  const figure = element("div", "code-block");
  const header = element("header");
  const copy = element("button", "plain", "Copy");
  copy.type = "button";
  copy.addEventListener("click", () => copyText(block.text, copy));
  header.append(element("span", "", block.language || "text"), copy);
  const pre = element("pre");
  pre.tabIndex = 0; // so that the keyboard can scroll it
  pre.append(element("code", "", block.text));
  figure.append(header, pre);
  return figure;
}

function renderBlock(block) {
  if (block.kind === "code") return renderCode(block);
  if (block.kind === "list") {
    const list = element(block.ordered ? "ol" : "ul");
    if (block.ordered) list.start = block.start;
    for (const item of block.items) {
      const node = element("li", item.deeper ? "deeper" : "");
      appendInline(node, item.text);
      list.append(node);
    }
    return list;
  }
  const paragraph = element("p", block.kind === "heading" ? "heading" : "");
  appendInline(paragraph, block.text);
  return paragraph;
}

// Makes `container` show `text`, keeping the nodes of blocks that are as they were.
export function renderMarkdown(container, text) {
  const blocks = parseBlocks(text);
  const shown = container.shownKeys ?? [];
  let same = 0;
  while (same < blocks.length && same < shown.length && shown[same] === blocks[same].key) ++same;
  while (container.children.length > same) container.lastChild.remove();
  for (const block of blocks.slice(same)) container.append(renderBlock(block));
  container.shownKeys = blocks.map((block) => block.key);
}

export async function copyText(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser refused";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}
