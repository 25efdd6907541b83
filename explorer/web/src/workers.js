// The workers of the editor. Their files are in the same folder as this script.
const urls = WORKERS

globalThis.MonacoEnvironment = {
  getWorker: (_, label) => new Worker(new URL(urls[label] ?? urls.editor, import.meta.url), { type: 'module' }),
}
