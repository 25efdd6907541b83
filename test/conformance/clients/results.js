// Results as the protocols have them, {data, errors}, and as an adapter has
// them: data, or an error.

// into is an observer that hands results on to a sink. Errors within a result
// need not be the end, of which a sink that has a word for it is told.
export function into(sink) {
  return {
    next({ data, errors, error }) {
      if (error) sink.error(error)
      else if (errors?.length > 0) (sink.told ?? sink.error)(errors)
      else sink.next(data)
    },
    error: sink.error,
    complete: sink.complete,
  }
}

// once is the first that comes, of what need not be a stream.
export function once(listen) {
  return new Promise((resolve, reject) => {
    listen({ next: resolve, error: reject, complete: () => reject(new Error('completed without an answer')) })
  })
}
