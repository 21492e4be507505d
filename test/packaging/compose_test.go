package packaging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/test/servers"
)

// versioned is an image with a tag that names a release. "latest", "7" and no tag at all move.
var versioned = regexp.MustCompile(`^[^:@]+:(v?\d+\.\d+(\.\d+)?)[\w.-]*$`)

func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(servers.Root(t), "docker-compose.yaml")}, cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatalf("docker compose would refuse the file: %v", err)
	}
	return project
}

func TestComposeServices(t *testing.T) {
	project := loadCompose(t)
	for name, service := range project.Services {
		if (service.Image == "") == (service.Build == nil) {
			t.Errorf("%s: has image %q and build %v, want one of them", name, service.Image, service.Build)
		}
		if service.Image != "" && !versioned.MatchString(service.Image) {
			t.Errorf("%s: image %q is not pinned to a release", name, service.Image)
		}
		if service.Restart == "" {
			t.Errorf("%s: is not started again when it ends", name)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network (%q)", name, port.Published, port.HostIP)
			}
		}
		for other, dependency := range service.DependsOn {
			healthy := dependency.Condition == types.ServiceConditionHealthy
			if hasCheck := project.Services[other].HealthCheck != nil; healthy != hasCheck {
				t.Errorf("%s: waits for %s until %s, which has a health check: %v", name, other, dependency.Condition, hasCheck)
			}
		}
		for _, volume := range service.Volumes {
			if volume.Type == types.VolumeTypeBind && !volume.ReadOnly {
				t.Errorf("%s: may write to %s", name, volume.Source)
			}
		}
	}
	for _, name := range []string{"redis", "weir", "envoy"} {
		if project.Services[name].HealthCheck == nil {
			t.Errorf("%s: has no health check", name)
		}
	}
}

// The hosts and ports in the bootstrap are the services of the compose file.
func TestComposeReachesWhatTheBootstrapNames(t *testing.T) {
	project := loadCompose(t)
	published := map[string]bool{}
	for _, port := range project.Services["envoy"].Ports {
		published[port.Published] = true
	}
	bootstrap := loadBootstrap(t)
	for _, listener := range bootstrap.Resources.Listeners {
		if port := strconv.Itoa(listener.Address.Socket.Port); !published[port] {
			t.Errorf("listener %s: port %s is not published", listener.Name, port)
		}
	}
	ports := map[string]int{}
	for _, cluster := range bootstrap.Resources.Clusters {
		for _, locality := range cluster.Assignment.Localities {
			for _, endpoint := range locality.Endpoints {
				socket := endpoint.Endpoint.Address.Socket
				if _, ok := project.Services[socket.Host]; !ok {
					t.Errorf("cluster %s: no service is called %q", cluster.Name, socket.Host)
				}
				ports[socket.Host] = socket.Port
			}
		}
	}
	if command, port := strings.Join(project.Services["echo"].Command, " "), ports["echo"]; !strings.Contains(command, fmt.Sprintf("-listen=:%d", port)) {
		t.Errorf("echo is started with %q, and Envoy calls it on port %d", command, port)
	}
	if !slices.Contains(loadImage(t).exposed, strconv.Itoa(ports["weir"])) {
		t.Errorf("Envoy calls weir on port %d, which its image does not expose", ports["weir"])
	}
}

// bootstrap is what matters here of an Envoy bootstrap file.
type bootstrap struct {
	Resources struct {
		Listeners []struct {
			Name    string
			Address address
		}
		Clusters []struct {
			Name       string
			Assignment struct {
				Localities []struct {
					Endpoints []struct{ Endpoint struct{ Address address } } `yaml:"lb_endpoints"`
				} `yaml:"endpoints"`
			} `yaml:"load_assignment"`
		}
	} `yaml:"static_resources"`
}

type address struct {
	Socket struct {
		Host string `yaml:"address"`
		Port int    `yaml:"port_value"`
	} `yaml:"socket_address"`
}

func loadBootstrap(t *testing.T) bootstrap {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(servers.Root(t), "envoy", "bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file bootstrap
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	return file
}
