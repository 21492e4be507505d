package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each testdata file is named after its fault; NAME.want holds all that must be said about it.
func TestFaultyFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(Source{File: file})
			if err == nil {
				t.Fatal("it was loaded")
			}
			if got := err.Error(); got != strings.TrimSpace(string(want)) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if !errors.Is(err, ErrInvalid) {
				t.Error("it is not ErrInvalid")
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Error("it shows a password")
			}
			var problem *Problem
			if !errors.As(err, &problem) || problem.Message == "" {
				t.Errorf("the first problem is %+v", problem)
			}
		})
	}
}
