"use strict";

const form = document.getElementById("ask");
const said = document.getElementById("said");

// The key stays in the memory of this page.
async function show(key) {
  const answer = await fetch("openapi.json", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  form.hidden = answer.status !== 401;
  if (!answer.ok) {
    said.textContent = (await answer.json()).detail;
    return;
  }
  said.textContent = "";
  const ui = SwaggerUIBundle({
    spec: await answer.json(),
    dom_id: "#swagger-ui",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
    onComplete: () => key && setTimeout(() => ui.preauthorizeApiKey("key", key)),
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(new FormData(form).get("key"));
});
show("");
