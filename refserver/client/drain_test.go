package client_test

import (
	"testing"
	"time"
)

func TestADrainSaysSinceWhenAndWhatIsBusy(t *testing.T) {
	api, _ := answering(t, 200, nil, `{"draining":true,"since_ms":1700000000123,"sandboxes":2,"sandbox_ids":["a","b"],"busy":[{"id":"b","reason":"why"}]}`)
	if since, err := api.Drain(t.Context()); err != nil || !since.Equal(time.UnixMilli(1700000000123)) {
		t.Errorf("since %s, %v", since, err)
	}
	got, err := api.DrainStatus(t.Context())
	if err != nil || !got.Draining || got.Sandboxes != 2 || len(got.SandboxIDs) != 2 || len(got.Busy) != 1 || got.Busy[0].ID != "b" || got.Busy[0].Reason != "why" {
		t.Errorf("status %+v, %v", got, err)
	}
}
