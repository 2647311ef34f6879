// Where the server asks for a token.
import { html, useState } from "./html.js";
import { loadRuns } from "./load.js";
import { logIn } from "./session.js";

export function LogIn() {
  const [error, setError] = useState(null);
  const enter = async (event) => {
    event.preventDefault();
    try {
      await logIn(event.target.elements.token.value);
      await loadRuns();
    } catch (failure) {
      setError(failure.message);
    }
  };
  return html`<section class="card login" aria-labelledby="login-title">
    <header class="card-head"><h1 id="login-title">This twin asks for a token</h1></header>
    <form class="form" onSubmit=${enter}>
      <label>Token <input name="token" type="password" autocomplete="current-password" required /></label>
      <div class="form-end"><button type="submit" class="main">Enter</button></div>
    </form>
    ${error && html`<p class="says error" role="alert">${error}</p>`}
    <p class="note">It comes from whoever started the server. A viewer's token shows everything, an operator's gives orders, too.</p>
  </section>`;
}
