package rulestore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPostgresSettings(t *testing.T) {
	options := PostgresOptions{
		Host: "db.example", Port: 6543, Name: `it's a \ "name"`, User: `u' sslmode='disable`, SSLMode: "verify-full",
	}
	if err := options.complete(); err != nil {
		t.Fatal(err)
	}
	config, err := options.connConfig()
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != options.Host || config.Port != options.Port || config.Database != options.Name || config.User != options.User {
		t.Errorf("host %q, port %d, database %q, user %q", config.Host, config.Port, config.Database, config.User)
	}
	if config.TLSConfig == nil || config.TLSConfig.InsecureSkipVerify || config.TLSConfig.ServerName != options.Host || len(config.Fallbacks) != 0 {
		t.Errorf("verify-full does not hold: %+v, %d fallbacks", config.TLSConfig, len(config.Fallbacks))
	}
	if options.MaxOpenConns != 25 || options.MaxIdleConns != 5 || options.ConnMaxLifetime != 5*time.Minute || config.ConnectTimeout != 5*time.Second {
		t.Errorf("defaults %+v, connect timeout %v", options, config.ConnectTimeout)
	}

	few := PostgresOptions{MaxOpenConns: 2}
	if err := few.complete(); err != nil || few.MaxIdleConns != 2 {
		t.Errorf("%d idle of 2 connections, %v", few.MaxIdleConns, err)
	}

	options.SSLRootCert = filepath.Join(t.TempDir(), "missing.pem")
	if _, err := options.connConfig(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "missing.pem") {
		t.Errorf("error %v does not name the file that is missing", err)
	}
}
