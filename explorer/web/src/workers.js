// The editor's web workers are separate files in the same directory.
const urls = WORKERS

globalThis.MonacoEnvironment = {
  getWorker: (_, label) => new Worker(new URL(urls[label] ?? urls.editor, import.meta.url), { type: 'module' }),
}
