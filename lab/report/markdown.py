"""The part of Markdown that the lab's READMEs use, as HTML without links."""

import html
import re


def section(text, title):
    """The text below a heading, up to the next one of its level or above; None if there is no such heading."""
    lines, found, level, fenced = [], False, 0, False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = None if fenced else re.match(r"(#+) +(.*)", line)
        if heading and found and len(heading[1]) <= level:
            break
        if found:
            lines.append(line)
        elif heading and heading[2].strip() == title:
            found, level = True, len(heading[1])
    return "\n".join(lines) if found else None


def inline(text):
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    # The page stands alone: a link keeps its words.
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def render(text):
    """HTML of paragraphs, lists, tables, headings and fenced code."""
    out, lines, at = [], [line for line in text.splitlines() if not line.startswith("<!--")], 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("```")), len(lines))
            out.append(f"<pre>{html.escape(chr(10).join(lines[at + 1:end]))}</pre>")
            at = end + 1
        elif heading := re.match(r"#+ +(.*)", line):
            out.append(f"<h5>{inline(heading[1])}</h5>")
            at += 1
        elif line.startswith("|") and at + 1 < len(lines) and re.match(r"\|[-:| ]+$", lines[at + 1].strip()):
            end = next((n for n in range(at, len(lines)) if not lines[n].startswith("|")), len(lines))
            out.append(table(cells(line), [cells(row) for row in lines[at + 2:end]]))
            at = end
        elif re.match(r"[-*] ", line):
            items = []
            while at < len(lines) and lines[at].strip() and (re.match(r"[-*] ", lines[at]) or lines[at].startswith("  ")):
                if re.match(r"[-*] ", lines[at]):
                    items.append(lines[at][2:])
                else:
                    items[-1] += " " + lines[at].strip()
                at += 1
            out.append("<ul>" + "".join(f"<li>{inline(item)}</li>" for item in items) + "</ul>")
        else:
            end = next((n for n in range(at + 1, len(lines))
                        if not lines[n].strip() or re.match(r"([-*|#]|```)", lines[n])), len(lines))
            out.append(f"<p>{inline(' '.join(lines[at:end]))}</p>")
            at = end
    return "\n".join(out)


def table(head, rows):
    """A table whose cells are Markdown."""
    row = lambda tag, values: "<tr>" + "".join(f"<{tag}>{inline(value)}</{tag}>" for value in values) + "</tr>"
    return ('<div class="wide"><table><thead>' + row("th", head) + "</thead><tbody>"
            + "".join(row("td", values) for values in rows) + "</tbody></table></div>")
