package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestClientTextCreatesNoMetricSeries(t *testing.T) {
	tr := start(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(n int) {
		t.Helper()
		name := fmt.Sprint("N", n)
		r, err := http.NewRequest("POST", tr.url+"/"+name+"/graphql?"+name,
			strings.NewReader(`{"query":"query `+name+`{__typename}"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = fmt.Sprintf("%s.example:%d", name, 1000+n)
		for key, value := range map[string]string{
			"Content-Type": "application/json", "User-Agent": name, "Origin": "https://" + r.Host,
			"X-Forwarded-Proto": name, "Forwarded": "host=" + name,
		} {
			r.Header.Set(key, value)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if answer, err := io.ReadAll(res.Body); err != nil || string(answer) != `{"data":{"__typename":"Query"}}` {
			t.Fatalf("received %s, error %v", answer, err)
		}
	}
	series := func() (n int) {
		families, err := tr.tel.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "go_") {
				n += len(family.GetMetric())
			}
		}
		return n
	}
	send(0)
	tr.await("http_server_request_duration_seconds_count") // recorded last, after the response
	first := series()
	for n := range 20 {
		send(1 + n)
	}
	if now := series(); now != first {
		t.Errorf("%d series exist after the requests, want %d as before", now, first)
	}
}
