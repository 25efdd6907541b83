// The editor's workers, which are files beside this one.
const urls = WORKERS

globalThis.MonacoEnvironment = {
  getWorker: (_, label) => new Worker(new URL(urls[label] ?? urls.editor, import.meta.url), { type: 'module' }),
}
