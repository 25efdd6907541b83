package tonlite_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// changed returns a copy of config in which the field at the given path has another value.
func changed(t *testing.T, config []byte, value any, path ...string) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(config, &all); err != nil {
		t.Fatal(err)
	}
	at := all
	for _, name := range path[:len(path)-1] {
		switch next := at[name].(type) {
		case []any:
			at = next[0].(map[string]any)
		default:
			at = next.(map[string]any)
		}
	}
	at[path[len(path)-1]] = value
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenReportsMisconfigurationInOneLine(t *testing.T) {
	chain := generate(20)
	s := start(t, chain, nil)
	good := s.Config()
	down := start(t, chain, nil)
	down.Stop()
	mute := start(t, chain, nil)
	t.Cleanup(mute.Stall())
	liar := start(t, chain, nil)
	liar.SetLie(liteservertest.FalseHead)
	gap := start(t, chain, nil)
	gap.SetLie(liteservertest.FalseLinks)
	foreign := start(t, chain, nil)
	foreign.SetLie(liteservertest.FalseNetwork)
	key, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := base64.StdEncoding.EncodeToString(key)
	hash := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32))

	none := &tonlite.Options{}
	for _, row := range []struct {
		name   string
		config []byte
		opts   *tonlite.Options
		want   string
	}{
		{"no configuration", nil, none, "the configuration is empty"},
		{"not a configuration", []byte("<html>"), none, "is not a global.config.json"},
		{"no servers", changed(t, good, []any{}, "liteservers"), none, "has no liteservers"},
		{"a malformed key", changed(t, good, "c2hvcnQ=", "liteservers", "id", "key"), none,
			"is not 32 bytes in base64"},
		{"a wrong key", changed(t, good, other, "liteservers", "id", "key"), none, "it may have another key"},
		{"a stopped server", down.Config(), none, "connection refused"},
		{"a server that does not respond", mute.Config(), &quick, "deadline exceeded"},
		{"another network", foreign.Config(), none, "another network"},
		{"a malformed hash", changed(t, good, "c2hvcnQ=", "validator", "zero_state", "root_hash"), none,
			"is not 32 bytes long"},
		{"an init block that is the zero state", changed(t, good, 0, "validator", "init_block", "seqno"), none,
			"init_block is missing or is the zero state"},
		{"an init block outside the masterchain", changed(t, good, 0, "validator", "init_block", "workchain"), none,
			"not a masterchain block"},
		{"an init block with a wrong hash", changed(t, good, hash, "validator", "init_block", "root_hash"), none,
			"the newest masterchain block"},
		{"a proof without its first link", gap.Config(), none, "the links are not connected"},
		{"a server that announces a forged block", liar.Config(), none, "invalid proof"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := tonlite.Open(t.Context(), row.config, row.opts)
			if err == nil {
				b.Close()
				t.Fatal("Open returned no error")
			}
			text := err.Error()
			oneLine := strings.HasPrefix(text, "tonlite: ") && !strings.Contains(text, "\n")
			if !oneLine || !strings.Contains(text, row.want) {
				t.Errorf("got error %q, want one line that begins with tonlite and contains %q", text, row.want)
			}
		})
	}
	t.Run("one working server is enough", func(t *testing.T) {
		slow := tonlite.Options{Timeout: time.Minute}
		within(t, 20*time.Second, func() { open(t, down.Config(mute, foreign, s), &slow) })
	})
	t.Run("a canceled context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if b, err := tonlite.Open(ctx, good, nil); err == nil {
			b.Close()
			t.Error("Open returned no error")
		}
	})
}

func TestReadConfigReadsFileOrURLAndHidesSecrets(t *testing.T) {
	s := start(t, generate(3), nil)
	file := filepath.Join(t.TempDir(), "global.config.json")
	if err := os.WriteFile(file, s.Config(), 0o600); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(http.StripPrefix("/there", http.FileServer(http.Dir(filepath.Dir(file)))))
	defer web.Close()
	trusting := *http.DefaultClient
	defer func(known http.Client) { *http.DefaultClient = known }(trusting)
	*http.DefaultClient = *web.Client()
	for _, from := range []string{file, web.URL + "/there/global.config.json"} {
		config, err := tonlite.ReadConfig(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		open(t, config, nil)
	}
	guarded := strings.Replace(web.URL, "://", "://user:s3cret@", 1)
	for _, from := range []string{
		file + "x", web.URL + "/elsewhere", guarded + "/elsewhere",
		strings.Replace(guarded, "user", "%zz", 1), "https://user:s3cret@127.0.0.1:1/",
		"https://s3cret@127.0.0.1:1/", "https://127.0.0.1:1/?key=s3cret", "http://user:s3cret@127.0.0.1:1/",
		web.URL + "/elsewhere?key=s3cret",
	} {
		_, err := tonlite.ReadConfig(t.Context(), from)
		if err == nil || !strings.HasPrefix(err.Error(), "tonlite: read the configuration: ") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got error %v, want one with the usual prefix and without the secret", from, err)
		}
	}
}

func TestReadConfigRejectsPlainHTTP(t *testing.T) {
	s := start(t, generate(3), nil)
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = w.Write(s.Config())
	}))
	defer plain.Close()
	web := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer web.Close()
	defer func(known http.Client) { *http.DefaultClient = known }(*http.DefaultClient)
	*http.DefaultClient = *web.Client()
	for _, from := range []string{plain.URL, strings.Replace(plain.URL, "http", "HTTP", 1), web.URL} {
		_, err := tonlite.ReadConfig(t.Context(), from)
		if err == nil || !strings.Contains(err.Error(), "only https:// is safe") {
			t.Errorf("%s: got error %v, want that only https:// is safe", from, err)
		}
	}
	if asked {
		t.Error("the configuration was requested over plain HTTP")
	}
}
