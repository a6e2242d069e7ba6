// The official verifier of the npm registry. Reads a JSON list of {secret, headers, body (hex)} on standard input and
// prints a line for each: "accepted", or "refused" and why.
const { readFileSync } = require("node:fs");
const { Webhook } = require("standardwebhooks");

for (const seen of JSON.parse(readFileSync(0, "utf8"))) {
  const body = Buffer.from(seen.body, "hex");
  try {
    new Webhook(seen.secret).verify(body.toString("utf8"), seen.headers);
    console.log("accepted");
  } catch (error) {
    console.log(`refused ${error.name} ${error.message}`);
  }
}
