// Checks the signature of a platform's webhook and forwards it to Heardlog: node webhooks.mjs
// Set the secret of each platform that you use. The others are refused.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { send } from "./heardlog.mjs";

const { VAPI_SECRET, ELEVENLABS_SECRET, RETELL_API_KEY, AGORA_SECRET } = process.env;
const limit = 4 << 20;
const equal = (a, b) => Buffer.byteLength(a) === Buffer.byteLength(b) && timingSafeEqual(Buffer.from(a), Buffer.from(b));
const hmac = (key, ...parts) => parts.reduce((h, p) => h.update(p), createHmac("sha256", key)).digest("hex");
const recent = (seconds, within) => Math.abs(Date.now() / 1000 - seconds) <= within;
const fields = (header) => Object.fromEntries(header.split(",").map((f) => f.trim().split("=")));

// Each reports whether the platform signed the body.
const signed = {
  vapi: (h) => VAPI_SECRET && equal(h["x-vapi-secret"] ?? "", VAPI_SECRET),
  elevenlabs: (h, body) => {
    const { t = "", v0 = "" } = fields(h["elevenlabs-signature"] ?? "");
    return ELEVENLABS_SECRET && recent(t, 1800) && equal(v0, hmac(ELEVENLABS_SECRET, `${t}.`, body));
  },
  retell: (h, body) => {
    const { v = "", d = "" } = fields(h["x-retell-signature"] ?? "");
    return RETELL_API_KEY && recent(v / 1000, 300) && equal(d, hmac(RETELL_API_KEY, body, v));
  },
  agora: (h, body) => AGORA_SECRET && equal(h["agora-signature-v2"] ?? "", hmac(AGORA_SECRET, body)),
};

const server = createServer(async (req, res) => {
  const answer = (status) => res.writeHead(status, { "content-type": "application/json" }).end("{}");
  try {
    const platform = req.url.slice(1);
    if (req.method !== "POST" || !Object.hasOwn(signed, platform)) return answer(404);
    const parts = [];
    let size = 0;
    for await (const part of req) {
      if ((size += part.length) > limit) return answer(413);
      parts.push(part);
    }
    const body = Buffer.concat(parts); // the bytes that were signed
    if (!signed[platform](req.headers, body)) return answer(401);
    await send(`/evidence/${platform}`, body);
    answer(200);
  } catch (err) {
    console.error(err.message);
    // A call that Heardlog does not know: the platform need not repeat its event.
    answer(err.status >= 400 && err.status < 500 && err.status !== 429 ? 200 : 503);
  }
});

server.listen(process.env.PORT ?? 3000, () => console.log(`listening on port ${server.address().port}`));
