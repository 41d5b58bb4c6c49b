import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * A REST catalog: Iceberg's own handlers of requests over its JDBC catalog. Here are only the ways from a request to its
 * handler, as in RESTCatalogAdapter of Iceberg's tests, which is in no jar that can be had without a classifier; and
 * accidents that a test asks for: a commit's reply that is lost, and tokens that expire.
 *
 * <p>Arguments: port, file of the database, folder of the tables.
 */
public class IcebergRest {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Set<String> TOKENS = ConcurrentHashMap.newKeySet();
  private static final JdbcCatalog CATALOG = new JdbcCatalog();
  /** What becomes of the reply to the next commit: "", "cut", or a status. */
  private static volatile String accident = "";

  public static void main(String[] args) throws IOException {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(JSON);
    CATALOG.setConf(new Configuration());
    CATALOG.initialize(
        "rest", Map.of("uri", "jdbc:sqlite:" + args[1], "warehouse", "file://" + args[2], "jdbc.schema-version", "V1"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 50);
    server.createContext("/", IcebergRest::answer);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
  }

  private static void answer(HttpExchange exchange) throws IOException {
    try (exchange) {
      byte[] body = exchange.getRequestBody().readAllBytes();
      String[] path = exchange.getRequestURI().getRawPath().substring(1).split("/");
      try {
        Object found = handled(exchange, path, body);
        boolean isCommit = exchange.getRequestMethod().equals("POST") && path.length == 5;
        String lost = isCommit ? accident : "";
        if (isCommit) {
          accident = "";
        }
        if (lost.equals("cut")) {
          return; // the connection is closed without a reply
        }
        if (!lost.isEmpty()) {
          send(exchange, Integer.parseInt(lost), error(Integer.parseInt(lost), "Lost", "by request of a test"));
          return;
        }
        send(exchange, found == null ? 204 : 200, found);
      } catch (Exception failed) {
        int status = status(failed);
        send(exchange, status, error(status, failed.getClass().getSimpleName(), String.valueOf(failed.getMessage())));
      }
    }
  }

  private static Object handled(HttpExchange exchange, String[] path, byte[] body) throws IOException {
    String way = exchange.getRequestMethod() + " " + path.length;
    if (path[0].equals("test")) {
      if (path[1].equals("expire")) {
        TOKENS.clear();
      } else {
        accident = path[1];
      }
      return null;
    }
    if (path[1].equals("config")) {
      return Map.of("defaults", Map.of(), "overrides", Map.of());
    }
    if (path[1].equals("oauth")) {
      String token = UUID.randomUUID().toString();
      TOKENS.add(token);
      return Map.of("access_token", token, "token_type", "bearer", "expires_in", 3600);
    }
    String given = String.valueOf(exchange.getRequestHeaders().getFirst("Authorization"));
    if (!TOKENS.contains(given.replace("Bearer ", ""))) {
      throw new SecurityException("the token has expired");
    }
    if (way.equals("POST 2")) {
      return CatalogHandlers.createNamespace(CATALOG, JSON.readValue(body, CreateNamespaceRequest.class));
    }
    Namespace in = Namespace.of(text(path[2]).split("\u001f"));
    switch (way) {
      case "HEAD 3", "GET 3":
        return CatalogHandlers.loadNamespace(CATALOG, in);
      case "POST 4":
        CreateTableRequest wanted = JSON.readValue(body, CreateTableRequest.class);
        return wanted.stageCreate()
            ? CatalogHandlers.stageTableCreate(CATALOG, in, wanted)
            : CatalogHandlers.createTable(CATALOG, in, wanted);
      case "GET 5", "HEAD 5":
        return CatalogHandlers.loadTable(CATALOG, TableIdentifier.of(in, text(path[4])), SnapshotMode.ALL);
      case "POST 5":
        UpdateTableRequest update = JSON.readValue(body, UpdateTableRequest.class);
        return CatalogHandlers.updateTable(CATALOG, TableIdentifier.of(in, text(path[4])), update);
      case "DELETE 5":
        CatalogHandlers.dropTable(CATALOG, TableIdentifier.of(in, text(path[4])));
        return null;
      default:
        throw new UnsupportedOperationException(way);
    }
  }

  private static String text(String part) {
    return URLDecoder.decode(part, StandardCharsets.UTF_8);
  }

  private static int status(Exception failed) {
    if (failed instanceof NoSuchTableException || failed instanceof NoSuchNamespaceException) {
      return 404;
    } else if (failed instanceof CommitFailedException || failed instanceof AlreadyExistsException) {
      return 409;
    } else if (failed instanceof SecurityException) {
      return 401;
    }
    return failed instanceof CommitStateUnknownException ? 500 : 400;
  }

  private static Object error(int status, String type, String message) {
    return Map.of("error", Map.of("message", message, "type", type, "code", status));
  }

  private static void send(HttpExchange exchange, int status, Object found) throws IOException {
    byte[] body = found == null || exchange.getRequestMethod().equals("HEAD") ? new byte[0] : JSON.writeValueAsBytes(found);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
    if (body.length > 0) {
      exchange.getResponseBody().write(body);
    }
  }
}
