// Makes a site of the pages in docs: run `make site`. The navigation is the index, docs/README.md.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const docs = fileURLToPath(new URL("..", import.meta.url));
const source = "https://github.com/heardlog/heardlog/blob/main/";

const sidebar = [];
for (const line of readFileSync(join(docs, "README.md"), "utf8").split("\n")) {
  const heading = line.match(/^(?:## |\*\*)(.+?)(?:\*\*)?$/);
  const row = line.match(/^\| \[(.+?)\]\((.+?)\.md\)/);
  if (heading) sidebar.push({ text: heading[1], items: [] });
  if (row) sidebar.at(-1).items.push({ text: row[1], link: `/${row[2]}` });
}

// sourceLinks makes links to files outside of docs lead to the repository.
function sourceLinks(md) {
  md.core.ruler.push("source-links", ({ tokens, env }) => {
    for (const link of tokens.flatMap((t) => t.children ?? []).filter((t) => t.type === "link_open")) {
      const target = link.attrGet("href");
      if (/^([a-z]+:|#|\/)/.test(target)) continue;
      const file = join(dirname(env.realPath ?? env.path), target.split("#")[0]);
      const name = relative(join(docs, ".."), file);
      if (name.startsWith("docs/")) continue;
      if (!existsSync(file)) throw new Error(`${env.path}: there is no ${name}`);
      link.attrSet("href", source + name);
    }
  });
}

// plainCode keeps {{…}} in inline code from being taken for a variable of the site.
function plainCode(md) {
  md.core.ruler.push("plain-code", ({ tokens }) => {
    for (const code of tokens.flatMap((t) => t.children ?? []).filter((t) => t.type === "code_inline")) {
      code.attrSet("v-pre", "");
    }
  });
}

export default defineConfig({
  title: "Heardlog",
  description: "Conversation memory for voice agents that knows what was heard",
  outDir: join(docs, "../dist/site"),
  rewrites: { "README.md": "index.md" },
  ignoreDeadLinks: "localhostLinks", // addresses of a server on the reader's machine
  markdown: {
    config(md) {
      sourceLinks(md);
      plainCode(md);
    },
  },
  // A page that fails while it is made is left empty, and the build goes on.
  transformHtml(html, id) {
    if (!html.includes("<h1") && !id.endsWith("404.html")) throw new Error(`${id}: the page could not be made, see above`);
  },
  themeConfig: {
    sidebar: sidebar.filter((group) => group.items.length > 0),
    search: { provider: "local" },
    outline: [2, 3],
  },
});
