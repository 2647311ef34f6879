// Who looks: what the server says this viewer may do.
import { ask, send } from "./api.js";
import { signal } from "./html.js";

export const session = signal({ mayOperate: false, needsToken: false, byToken: false });

export const logIn = (token) => send("/login", { token });

export const logOut = () => ask("/login", { method: "DELETE" });
