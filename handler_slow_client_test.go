package chaingql_test

import (
	"bytes"
	"context"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestSlowBodyReceivesStatus408OverTCP(t *testing.T) {
	realTime(t, "an http.Server applies the read deadline to a TCP connection")
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{BodyTimeout: 50 * time.Millisecond}})
	srv := httptest.NewServer(mounted(h))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /demo/graphql HTTP/1.1\r\nHost: x\r\n"+
		"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	response, err := io.ReadAll(conn) // until the connection is closed
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(refusalBody("The request body did not arrive in time.", "TIMEOUT"))
	if !bytes.HasPrefix(response, []byte("HTTP/1.1 408 ")) || !bytes.HasSuffix(response, want) {
		t.Errorf("the response is %s, want status 408", response)
	}
}

func TestSlowBodyReceivesAnErrorAndIsCut(t *testing.T) {
	for _, c := range []struct {
		what, header string
		status       int
		after        time.Duration
	}{
		{"of an admitted client", "Authorization: Basic OnJpZ2h0", 408, 5 * time.Second},
		{"of a refused client", "Authorization: Basic Ondyb25n", 401, 0},
		{"of an unknown encoding", "Content-Encoding: gzip", 401, 0},
		{"of a request with an unacceptable Accept", "Accept: image/png", 406, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, memchain.New(), chaingql.Options{
					Authorizer: chaingql.StaticProjects{"demo": {Secret: "right", RequireSecret: true}},
				})
				w := serve(t, h).wire(t)
				start := time.Now()
				w.post("/demo/graphql", "{", 1000, c.header)
				dribbled := make(chan struct{})
				go func() {
					defer close(dribbled)
					for range 100 {
						time.Sleep(time.Second)
						if _, err := io.WriteString(w, " "); err != nil {
							return
						}
					}
				}()
				status, _ := w.response()
				equal(t, "status", status, c.status)
				equal(t, "time of the response", time.Since(start), c.after)
				<-dribbled
				if end := time.Since(start); end > 6*time.Second {
					t.Errorf("the connection was cut after %v, want at most 6s", end)
				}
			})
		})
	}
}

func TestBodyTimeoutDoesNotEndTheOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := stubBackend{Backend: memchain.New(),
			balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
				select {
				case <-time.After(4 * time.Second):
					return big.NewInt(7), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}
		h, _ := newHandler(t, slow, chaingql.Options{Limits: chaingql.Limits{BodyTimeout: time.Second}})
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", askBalance, len(askBalance))
		status, body := w.response()
		equal(t, "status", status, 200)
		equal(t, "body", body, balanceResponse("7"))
	})
}

func TestSlowReaderIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", request802, len(request802))
		time.Sleep(5*time.Second - 1)
		if _, err := w.Read(make([]byte, 10)); err != nil {
			t.Fatalf("the client was disconnected before the deadline: %v", err)
		}
		time.Sleep(time.Second)
		if rest, _ := io.ReadAll(w); len(rest) > 0 {
			t.Errorf("the client received %q after the deadline", rest)
		}
	})
}

// The write deadline of a response must not apply to later responses on the same connection, whether they come from the
// Handler or from another handler of the host.
func TestWriteDeadlineDoesNotApplyToLaterResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		mux := mounted(h)
		mux.HandleFunc("/host", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		})
		w := serve(t, mux).wire(t)
		for _, path := range []string{"/demo/graphql", "/host", "/demo/graphql", "/demo/graphql"} {
			w.post(path, request802, len(request802))
			status, body := w.response()
			equal(t, "status of "+path, status, 200)
			if path != "/host" {
				equal(t, "body", body, response802)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestTimeoutsCanBeTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := stubBackend{Backend: memchain.New(),
			balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
				time.Sleep(time.Hour)
				return big.NewInt(7), ctx.Err()
			}}
		limits := chaingql.Limits{BodyTimeout: -1, WriteTimeout: -1, BackendTimeout: -1}
		h, _ := newHandler(t, slow, chaingql.Options{Limits: limits})
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", askBalance[:10], len(askBalance))
		time.Sleep(time.Hour)
		_, _ = io.WriteString(w, askBalance[10:])
		time.Sleep(2 * time.Hour)
		_, body := w.response()
		equal(t, "body", body, balanceResponse("7"))
	})
}

// A client that reads nothing must not keep its connection by requests whose responses have no body, or that are no
// queries.
func TestUnreadShortResponsesAreCut(t *testing.T) {
	const path = "/demo/graphql?query=%7B__typename%7D"
	const preflight = "Origin: https://a.example\r\nAccess-Control-Request-"
	for what, request := range map[string]string{
		"status 304": "GET " + path + " HTTP/1.1\r\nHost: x\r\nIf-None-Match: ",
		"a preflight response": "OPTIONS " + path + " HTTP/1.1\r\nHost: x\r\n" + preflight + "Method: POST\r\n" +
			preflight + "Headers: content-type\r\nX: ",
		"readiness": "GET /readyz HTTP/1.1\r\nHost: x\r\nX: ",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limits []string
				h, _ := newHandler(t, memchain.New(), chaingql.Options{
					AllowedOrigins: []string{"*"},
					Hooks: chaingql.Hooks{LimitHit: func(_ context.Context, name string) {
						limits = append(limits, name)
					}},
				})
				mux := mounted(h)
				mux.HandleFunc("/readyz", h.ServeReady)
				tag := do(mux, "GET", path, "").Header().Get("ETag")
				w := serve(t, mux).wire(t)
				if _, err := io.WriteString(w, request+tag+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5*time.Second + 1)
				synctest.Wait()
				if text, _ := io.ReadAll(w); len(text) > 0 {
					t.Errorf("the client received %q after the deadline", text)
				}
				equal(t, "limits", strings.Join(limits, " "), "WriteTimeout")
			})
		})
	}
}
