// closing describes to the user why a WebSocket was closed.
export function closing({ code, reason, message }) {
  if (code === 4403) return { message: 'Unauthorized access: the project or its secret is wrong.' }
  if (code === undefined || code === 1006 || message) return { message: 'The line to the server is lost.' }
  return { message: `The server ended the connection: ${reason || 'without a reason'} (${code}).` }
}
